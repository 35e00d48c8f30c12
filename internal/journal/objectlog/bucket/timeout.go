package bucket

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"
)

// Timeout bounds one request that carries little; one more second is allowed for
// each MiB. 0: 5 seconds.
type Timeout time.Duration

// For is the time that one request with size bytes may take.
func (t Timeout) For(size int) time.Duration {
	if t <= 0 {
		t = Timeout(5 * time.Second)
	}
	return time.Duration(t) + time.Duration(size)*time.Second/(1<<20)
}

// Limit returns a context for one request with size bytes.
func (t Timeout) Limit(ctx context.Context, size int) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, t.For(size), ErrTimeout)
}

// LimitBody returns a context for one request whose answer has a body. Once the
// answer says how long its body is, expect allows it the time for that.
func (t Timeout) LimitBody(ctx context.Context) (_ context.Context, expect func(size int64), done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(t.For(0), func() { cancel(ErrTimeout) })
	return ctx, func(size int64) { timer.Reset(t.For(int(size))) }, func() {
		timer.Stop()
		cancel(nil)
	}
}

// ReadBody reads the body of the object of that name, of which the store says that
// it has so many bytes (less than 0: it does not say). An object of more than most
// bytes is ErrTooLong, and no more than that are held.
func ReadBody(body io.Reader, name string, length, most int64) ([]byte, error) {
	length = max(0, length)
	if length > most {
		return nil, fmt.Errorf("object %s has %d bytes: %w", name, length, ErrTooLong)
	}
	buf := bytes.NewBuffer(make([]byte, 0, length+bytes.MinRead))
	if _, err := buf.ReadFrom(io.LimitReader(body, most+1)); err != nil {
		return nil, err
	}
	if int64(buf.Len()) > most {
		return nil, fmt.Errorf("object %s: %w", name, ErrTooLong)
	}
	return buf.Bytes(), nil
}
