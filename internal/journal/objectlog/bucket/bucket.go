package bucket

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/xbernetes/xbernetes/internal/backoff"
)

const (
	// Attempts is how often Again sends a request at most, and patience for how
	// many times the time of one request.
	Attempts = 5
	patience = 2
)

// Between is how long to wait before a request is sent again.
var Between = backoff.Backoff{First: 20 * time.Millisecond, Last: time.Second}

// Bucket is a Store whose requests belong to calls, which Close ends. Each request
// is sent once; Again repeats it.
type Bucket struct {
	Store
	timeout Timeout

	life context.Context // ends when Close is called
	end  context.CancelCauseFunc
	// mu orders Begin before Close or after it. Invariant: calls is added to
	// under mu only, and only while life goes on.
	mu    sync.Mutex
	calls sync.WaitGroup // between Begin and done
}

// New returns a Bucket that owns store, whose requests take so long at most.
func New(store Store, timeout Timeout) *Bucket {
	b := &Bucket{Store: store, timeout: timeout}
	b.life, b.end = context.WithCancelCause(context.Background())
	return b
}

// Begin starts a call of the user, which may send several requests. The
// context that it returns also ends when the bucket is closed; done must be
// called at the end. The error is ErrClosed, or that of ctx if it has ended.
func (b *Bucket) Begin(ctx context.Context) (_ context.Context, done func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.life.Err() != nil {
		return nil, nil, ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	b.calls.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	unlink := context.AfterFunc(b.life, func() { cancel(errClosing) })
	return ctx, func() {
		unlink()
		cancel(nil)
		b.calls.Done()
	}, nil
}

// Close ends the calls in flight, waits for them, and closes the connections to
// the store.
func (b *Bucket) Close() {
	b.mu.Lock()
	b.end(errClosing)
	b.mu.Unlock()
	b.calls.Wait()
	b.Store.Close()
}

// Again repeats a request that may be repeated while the store seems to be in
// trouble that passes.
func (b *Bucket) Again(ctx context.Context, do func() error) error {
	began := time.Now()
	for n := 1; ; n++ {
		err := do()
		if err == nil || !Passing(err) || n == Attempts || time.Since(began) > patience*b.timeout.For(0) || Between.Pause(ctx, n) != nil {
			return err
		}
	}
}

// Undated is the error about a store that does not say what time it is.
func (b *Bucket) Undated() error {
	return Explained(ErrUnfit, fmt.Sprintf("the answers of the store at %s carry no Date, by which a journal tells how old they are; use a store that sends one, as S3 does, and no proxy that removes it", b.Names().Store))
}
