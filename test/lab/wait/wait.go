// Package wait asks again and again until something is so. It never decides
// that something took too long: a limit only ends what would hang.
package wait

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// ErrNever is in the error of a check if what it checks can no longer come. It
// ends a wait at once.
var ErrNever = errors.New("has ended")

// Until calls check every 20 ms until it returns nil. It returns check's last
// error once ctx is done, or at once if the error is ErrNever.
func Until(ctx context.Context, what string, check func(context.Context) error) error {
	return Every(ctx, 20*time.Millisecond, what, check)
}

// Every is Until with another pause between two checks.
func Every(ctx context.Context, period time.Duration, what string, check func(context.Context) error) error {
	tick := time.NewTicker(period)
	defer tick.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if errors.Is(err, ErrNever) {
			return fmt.Errorf("wait until %s: %w", what, err)
		}
		if last == nil || ctx.Err() == nil { // not that ctx cut the check short
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, errors.Join(last, context.Cause(ctx)))
		case <-tick.C:
		}
	}
}

// Poll is Until for a test, which fails if the wait does. It returns how long
// the wait took.
func Poll(t testing.TB, within time.Duration, what string, check func(context.Context) error) time.Duration {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if err := Until(ctx, what, check); err != nil {
		t.Fatal(err)
	}
	return time.Since(began)
}

// For waits for d, or until ctx is done, which is an error.
func For(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
