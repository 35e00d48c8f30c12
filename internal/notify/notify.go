// Package notify tells a replica that the tail of its journal may have moved. It never
// decides anything: a notification is a hint, which may be lost, doubled, late or forged.
package notify

import (
	"context"
	"sync/atomic"
	"time"
)

// Notifier gives hints. Its Run must be running for them to come.
type Notifier interface {
	// C receives when the tail may have moved. Hints that nobody received yet become
	// one.
	C() <-chan struct{}
	// Active says that this replica has just seen or made a record; the
	// notifier may expect more. It never blocks.
	Active()
	// Run works until ctx ends, and returns nil then.
	Run(ctx context.Context) error
}

// Polling hints at intervals: the shortest one after any activity, and a quarter longer
// after each hint that no activity followed, up to the longest.
type Polling struct {
	min, max time.Duration
	c        chan struct{}
	active   atomic.Bool
	wake     chan struct{}
}

// NewPolling returns a notifier whose intervals are from minimum to maximum.
func NewPolling(minimum, maximum time.Duration) *Polling {
	return &Polling{min: minimum, max: max(minimum, maximum), c: make(chan struct{}, 1), wake: make(chan struct{}, 1)}
}

// C implements Notifier.
func (p *Polling) C() <-chan struct{} { return p.c }

// Active implements Notifier.
func (p *Polling) Active() {
	if !p.active.Swap(true) {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}

// Run implements Notifier.
func (p *Polling) Run(ctx context.Context) error {
	wait := p.min
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
			// Something moved during a long interval: hint again soon.
			if wait > p.min {
				wait = p.min
				timer.Reset(wait)
			}
			continue
		case <-timer.C:
		}
		select {
		case p.c <- struct{}{}:
		default:
		}
		if p.active.Swap(false) {
			wait = p.min
		} else {
			wait = min(wait+wait/4, p.max)
		}
		timer.Reset(wait)
	}
}
