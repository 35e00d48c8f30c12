// Package backoff spaces out the attempts of a call that fails. It makes no attempt
// itself, and decides nothing about when to give up.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff is how long to wait after an attempt has failed: First after the first one,
// twice as long after each further one, but never longer than Last. Each wait is cut
// short by a random part, at most half, so that callers who failed together do not try
// again together.
type Backoff struct {
	First, Last time.Duration // 0 < First <= Last
}

// Wait returns how long to wait after n attempts have failed, n >= 1.
func (b Backoff) Wait(n int) time.Duration {
	most := b.First
	for ; n > 1 && most < b.Last; n-- {
		most *= 2
	}
	most = min(most, b.Last)
	return most - rand.N(most/2+1)
}

// Pause waits after n attempts have failed. If ctx ends first, Pause returns ctx.Err().
func (b Backoff) Pause(ctx context.Context, n int) error {
	timer := time.NewTimer(b.Wait(n))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
