// Package notify tells a replica that the tail of its journal may have moved. It never
// decides anything: a notification is a hint, which may be lost, doubled, late or forged.
package notify

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// Notifier gives hints. Its Run must be running for them to come.
type Notifier interface {
	// C receives when the tail may have moved. Hints that nobody received yet become
	// one.
	C() <-chan struct{}
	// Wrote says that the journal has just stored a record of this replica at slot:
	// the notifier may tell others. It never blocks.
	Wrote(slot journal.Slot)
	// Found says that this replica has just read the records up to slot: the
	// notifier may expect more. It never blocks.
	Found(slot journal.Slot)
	// Run works until ctx ends, and returns nil then.
	Run(ctx context.Context) error
}

// Polling hints at intervals: the shortest one after any activity, and a quarter longer
// after each hint that no activity followed, up to the longest.
type Polling struct {
	interval interval
	c        chan struct{}
	active   atomic.Bool
	wake     chan struct{}
}

// NewPolling returns a notifier whose intervals are from minimum to maximum.
func NewPolling(minimum, maximum time.Duration) *Polling {
	return &Polling{interval: newInterval(minimum, maximum), c: make(chan struct{}, 1), wake: make(chan struct{}, 1)}
}

// C implements Notifier.
func (p *Polling) C() <-chan struct{} { return p.c }

// Wrote implements Notifier.
func (p *Polling) Wrote(journal.Slot) { p.moved() }

// Found implements Notifier.
func (p *Polling) Found(journal.Slot) { p.moved() }

func (p *Polling) moved() {
	if !p.active.Swap(true) {
		signal(p.wake)
	}
}

// Run implements Notifier.
func (p *Polling) Run(ctx context.Context) error {
	wait := p.interval
	timer := time.NewTimer(wait.now)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
			// Something moved during a long interval: hint again soon.
			if wait.now > wait.min {
				timer.Reset(wait.next(true))
			}
			continue
		case <-timer.C:
		}
		signal(p.c)
		timer.Reset(wait.next(p.active.Swap(false)))
	}
}

// interval is the time between two polls. Invariant: min <= now <= max.
type interval struct{ min, now, max time.Duration }

func newInterval(minimum, maximum time.Duration) interval {
	return interval{min: minimum, now: minimum, max: max(minimum, maximum)}
}

// next returns the time to the next poll: the shortest after activity, otherwise a
// quarter longer than the last.
func (i *interval) next(active bool) time.Duration {
	if active {
		i.now = i.min
	} else {
		i.now = min(i.now+i.now/4, i.max)
	}
	return i.now
}

// signal sends to a channel with room for one, unless it is full.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
