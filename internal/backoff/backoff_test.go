package backoff

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"
)

// TestWait: waits double up to the last one, are never cut by more than half, and
// differ between callers.
func TestWait(t *testing.T) {
	b := Backoff{First: 10 * time.Millisecond, Last: 75 * time.Millisecond}
	for n, most := range map[int]time.Duration{
		1: 10 * time.Millisecond, 2: 20 * time.Millisecond, 3: 40 * time.Millisecond, 4: 75 * time.Millisecond, 1000: 75 * time.Millisecond, math.MaxInt: 75 * time.Millisecond,
	} {
		seen := make(map[time.Duration]bool)
		for range 100 {
			wait := b.Wait(n)
			if wait < most/2 || wait > most {
				t.Fatalf("Wait(%d) = %s, want %s to %s", n, wait, most/2, most)
			}
			seen[wait] = true
		}
		if len(seen) == 1 {
			t.Errorf("Wait(%d) is the same each time", n)
		}
	}
}

// TestPauseEnds: a pause ends with its context, and says so.
func TestPauseEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (Backoff{First: time.Hour, Last: time.Hour}).Pause(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("Pause = %v, want %v", err, context.Canceled)
	}
	if err := (Backoff{First: 1, Last: 1}).Pause(t.Context(), 1); err != nil {
		t.Errorf("Pause = %v", err)
	}
}
