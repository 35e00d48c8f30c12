package replica

import (
	"errors"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// tailing is what the loop knows of its Reads.
type tailing struct {
	fetched chan fetch
	asking  *round       // reads that the next fetch answers
	reading int          // fetches under way
	began   time.Time    // when the last one did
	more    *time.Timer  // for another one beside it
	found   int          // how many records the last one brought
	limit   int          // how many it asked for
	behind  bool         // it brought as many
	hinted  bool         // fetch again when one is done
	empty   journal.Slot // an empty slot below records of ours, to be filled; 0: none
	vacant  journal.Slot // such a slot, left to whose turn it is, ...
	since   time.Time    // ... since then
	sighted journal.Slot // the last slot, when a Read last found it
	cleared journal.Slot // an empty slot that, by the records above it, was never held
	doubted journal.Slot // an empty slot while the records above it are looked at
}

// fetch is a Read, and what it returned.
type fetch struct {
	from  journal.Slot
	limit int
	began time.Time
	recs  [][]byte
	asked *round       // answered if it finds the tail
	known journal.Slot // unless the tail is farther, an empty slot need not be doubted
}

const (
	fetchLimit = 64
	pursuers   = 2 // Reads at once, while others write beside us
)

// fetch reads what comes after the state, now or once a Read under way is
// done. Reads that asked before it starts are answered by it.
func (l *loop) fetch() {
	if l.tail.reading > 0 {
		l.tail.hinted = true
		return
	}
	l.look()
}

// pursue keeps Reads under way, a part of a round trip apart, while records of
// others are expected that we wait for, or that bring us nearer to our turn.
func (l *loop) pursue(now time.Time) {
	if l.tail.reading == pursuers || !l.expecting(now) {
		return
	}
	pause := l.turns.trip / pursuers
	if wait := pause - now.Sub(l.tail.began); wait > 0 && l.tail.reading > 0 {
		l.tail.more.Reset(wait)
		return
	}
	l.look()
	l.tail.more.Reset(pause)
}

func (l *loop) expecting(now time.Time) bool {
	return l.turns.taken(now) || l.turns.contended() && len(l.open) > 0 && l.flying[l.state.Slot()+1] == nil
}

// look starts a Read.
func (l *loop) look() {
	t := &l.tail
	now := time.Now()
	f := fetch{from: l.state.Slot() + 1, limit: 1, began: now, asked: t.asking}
	if l.ready {
		f.known = t.sighted + span
	}
	t.reading++
	t.hinted, t.began, t.asking = false, now, nil
	if more := l.index.take(); more != nil {
		f.asked = more.with(f.asked)
	}
	// While following, the next record is worth more at once than with the
	// ones after it; while behind, many are read together.
	switch {
	case t.behind:
		f.limit = min(2*t.limit, fetchLimit)
	case l.expecting(now):
		f.limit = min(t.found+len(l.turns.now.busy)/2+2, fetchLimit)
	}
	l.group.Go(func() error { return l.read(f) })
}

// read reads until the journal answers.
func (l *loop) read(f fetch) error {
	wait := newPatience(l.Replica, "read")
	defer wait.over()
	for {
		recs, err := l.readOnce(wait, f.from, f.limit)
		if end := f.from + journal.Slot(len(recs)); err == nil && len(recs) < f.limit && end > f.known {
			// At the start, or after long away: nobody is told that the journal
			// ends here before it is known that it does.
			err = l.neverHeld(end, l.info.Depth)
		}
		if err == nil {
			f.recs = recs
			select {
			case l.tail.fetched <- f:
				return nil
			case <-l.ctx.Done():
				return l.ctx.Err()
			}
		}
		if errors.Is(err, journal.ErrTrimmed) && l.outran(&f) {
			continue
		}
		if errors.Is(err, journal.ErrTrimmed) || errors.Is(err, journal.ErrClosed) || errors.Is(err, journal.ErrCorrupt) || errors.Is(err, ErrLost) {
			return err
		}
		if err := wait.pause(l.ctx, err); err != nil {
			return err
		}
		f.began = time.Now()
	}
}

// outran moves a Read to where the state is, if that has come further meanwhile by
// records of ours: what the Read asked for may have been trimmed since, by us too.
func (l *loop) outran(f *fetch) bool {
	next := journal.Slot(0)
	if err := l.call(l.ctx, func(l *loop) { next = l.state.Slot() + 1 }); err != nil || next <= f.from {
		return false
	}
	f.from, f.began = next, time.Now()
	return true
}

func (l *loop) onFetched(f fetch) error {
	l.tail.reading--
	for i, rec := range f.recs {
		l.learn(f.from+journal.Slot(i), held{rec: rec})
	}
	if len(f.recs) > 0 {
		l.cfg.Notifier.Active()
	}
	if err := l.advance(); err != nil {
		return err
	}
	l.tail.found, l.tail.limit, l.tail.behind = len(f.recs), f.limit, len(f.recs) == f.limit
	if l.tail.behind {
		if f.asked != nil {
			l.tail.asking = f.asked.with(l.tail.asking)
		}
		l.look()
		return nil
	}
	now := time.Now()
	last := f.from + journal.Slot(len(f.recs)) - 1
	l.tail.sighted = last
	l.turns.found(last, f.began, now)
	l.sawEmpty(last+1, now)
	if !l.ready {
		l.ready = true
		close(l.Replica.ready)
		l.next = max(l.next, l.state.Slot()+1)
	}
	f.asked.answer()
	if l.tail.hinted {
		l.fetch()
	}
	l.pursue(now)
	return nil
}

// learn notes the record of a slot.
func (l *loop) learn(slot journal.Slot, h held) {
	if slot <= l.state.Slot() {
		return
	}
	if _, ok := l.known[slot]; !ok {
		l.known[slot] = h
	}
	l.next = max(l.next, slot+1)
}

// sawEmpty notes that a slot was empty. Where it holds up records of ours above
// it, which landed or have been under way for long, it is to be filled: at
// once, or where it is the turn of another writer, once that had some time.
func (l *loop) sawEmpty(slot journal.Slot, now time.Time) {
	t := &l.tail
	t.empty = 0
	if slot != l.state.Slot()+1 || l.flying[slot] != nil {
		return
	}
	held := len(l.known) > 0
	for _, b := range l.flying {
		held = held || now.Sub(b.sent) > overdue
	}
	if !held {
		return
	}
	if w := l.turns.standIn(slot); w != 0 && w != l.writer && l.turns.taken(now) {
		if t.vacant != slot {
			t.vacant, t.since = slot, now
		}
		if now.Sub(t.since) < 2*l.turns.trip {
			return
		}
	}
	if t.cleared == slot {
		t.empty = slot
		return
	}
	if t.doubted == slot {
		return
	}
	t.doubted = slot
	l.group.Go(func() error { return l.clear(slot) })
}

// clear has a slot filled once it is known that it was never held.
func (l *loop) clear(slot journal.Slot) error {
	if err := l.neverHeld(slot, nearby); err != nil {
		return err
	}
	return l.call(l.ctx, func(l *loop) {
		l.tail.cleared, l.tail.doubted = slot, 0
		if slot == l.state.Slot()+1 && l.flying[slot] == nil {
			l.tail.empty = slot
		}
	})
}
