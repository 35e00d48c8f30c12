package turns

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// apply gives the record of a slot to some writers' turns.
func apply(now time.Time, slot journal.Slot, s author, to ...*Turns) {
	for _, t := range to {
		t.Applied(slot, s.writer, false, s.rtt, now)
	}
}

// TestTurnsAgree: writers that know the journal up to different slots agree whose
// turn a slot is, as far as either may place a record.
func TestTurnsAgree(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	ahead, behind := &Turns{me: 1}, &Turns{me: 2}
	var records []author
	now := time.Now()
	checked := 0
	for slot := journal.Slot(1); slot < 5000; slot++ {
		s := author{writer: mvcc.WriterID(1 + rng.IntN(1+int(slot/500)))}
		if rng.IntN(3) > 0 {
			s.rtt = 80 * time.Millisecond
		}
		records = append(records, s)
		apply(now, slot, s, ahead)
		for behind.last+journal.Slot(rng.IntN(Span/2)) < slot {
			apply(now, behind.last+1, records[behind.last], behind)
		}
		for s := ahead.last + 1; s <= behind.last+Span; s++ {
			if len(ahead.plan[s%Span].busy) < 2 {
				continue // there the writers that are busy by now count, as each knows them
			}
			checked++
			if a, b := ahead.owner(s), behind.owner(s); a != b {
				t.Fatalf("slot %d is %d's at slot %d, and %d's at slot %d", s, a, ahead.last, b, behind.last)
			}
		}
	}
	if checked < 10000 {
		t.Errorf("compared %d slots only", checked)
	}
}

func TestTurnsPassTheAbsent(t *testing.T) {
	x := &Turns{me: 1}
	now, slot := time.Now(), journal.Slot(0)
	next := func(by mvcc.WriterID) {
		slot++
		apply(now, slot, author{by, time.Second}, x)
	}
	for range 2 * Span {
		next(mvcc.WriterID(1 + slot%3))
	}
	gone := mvcc.WriterID(2)
	stands := func() (n int) {
		for s := slot + 1; s <= slot+Span; s++ {
			if x.Heir(s) == gone {
				n++
			}
		}
		return n
	}
	if stands() == 0 {
		t.Fatal("a busy writer has no turns")
	}
	for misses := 0; misses < absence; {
		if stands() == 0 {
			t.Fatalf("given up after %d turns", misses)
		}
		if x.owner(slot+1) == gone {
			misses++
			next(1)
		} else {
			next(x.owner(slot + 1))
		}
	}
	if n := stands(); n != 0 {
		t.Errorf("a writer that is gone still has %d turns", n)
	}
	next(gone)
	if stands() == 0 {
		t.Error("a writer that is back has no turns")
	}
}

func TestTurn(t *testing.T) {
	all := func(journal.Slot) bool { return true }
	const r = 80 * time.Millisecond
	build := func(me mvcc.WriterID, rtt time.Duration) *Turns {
		x := &Turns{me: me, meter: meter{rtt: rtt}}
		for slot := journal.Slot(1); slot <= 100; slot++ {
			apply(time.Now(), slot, author{mvcc.WriterID(1 + slot%2), r}, x)
		}
		return x
	}
	// Of two writers 1 and 2, slot n is writer 1's where n is even.
	near := build(2, r)
	if c, ok := near.Next(164, false, all); c != (Choice{101, true}) || !ok {
		t.Errorf("the next slot is ours: %+v %v", c, ok)
	}
	near = build(1, r)
	if c, ok := near.Next(164, false, all); c != (Choice{102, false}) || !ok {
		t.Errorf("the slot after the next is ours, if there are requests: %+v %v", c, ok)
	}
	if c, ok := near.Next(164, true, all); c != (Choice{102, true}) || !ok {
		t.Errorf("an idle writer fills its turn early, so that nobody waits for it: %+v %v", c, ok)
	}
	if c, ok := near.Next(164, false, func(s journal.Slot) bool { return s > 102 }); c.Slot != 0 || !ok {
		t.Errorf("the turn after that must wait: %+v %v", c, ok)
	}
	far := build(1, 5*r)
	if c, _ := far.Next(164, false, func(s journal.Slot) bool { return s > 110 }); c != (Choice{112, true}) {
		t.Errorf("a far writer takes its turns further ahead: %+v", c)
	}
	near.lastFull = 90
	if c, _ := near.Next(164, true, all); c.Must {
		t.Error("an empty record must be written, although nobody has written requests for long")
	}
	if _, ok := build(3, r).Next(164, false, all); ok {
		t.Error("a turn for a writer that is not busy")
	}
	if c, ok := build(2, r).Next(164, false, func(s journal.Slot) bool { return s > 120 }); c.Slot != 0 || !ok {
		t.Errorf("a writer with batches on their way to all its turns goes to %+v, %v; want it to wait", c, ok)
	}
}

// TestTripOfAnOutage: the duration of an outage is not taken for a round trip.
func TestTripOfAnOutage(t *testing.T) {
	const r = 10 * time.Millisecond
	var x meter
	for range 10 {
		x.appended(r, false, time.Now())
	}
	for range 2 { // what was under way
		x.appended(35*time.Second, false, time.Now())
	}
	if x.rtt > 2*r {
		t.Errorf("the round trip was %v, and is %v after an outage", r, x.rtt)
	}
	for range 100 { // the store has moved away
		x.appended(10*r, false, time.Now())
	}
	if x.rtt < 9*r {
		t.Errorf("the round trip has been %v for long, and is taken for %v", 10*r, x.rtt)
	}
	x.appended(r, true, time.Now())
	if x.rtt != r {
		t.Errorf("a batch lost within %v, the round trip is taken for %v", r, x.rtt)
	}
}

// TestPace: a writer asks for turns once its batches follow each other without a
// pause, and no longer than that.
func TestPace(t *testing.T) {
	const rtt = 80 * time.Millisecond
	now := time.Now()
	var p Pace
	ask := func(pause time.Duration, unresolved bool) uint16 {
		p.Resolved(now)
		now = now.Add(pause)
		return p.Launch(false, now, unresolved, rtt)
	}
	for i := range saturated - 1 {
		if got := ask(0, false); got != 0 {
			t.Errorf("batch %d asks for turns with %d ms", i+1, got)
		}
	}
	if got := ask(0, false); got != 80 {
		t.Errorf("after %d batches without a pause the next one asks with %d ms, want 80", saturated-1, got)
	}
	if got := ask(time.Second, true); got != 80 {
		t.Errorf("a batch beside one without an outcome asks with %d ms, want 80", got)
	}
	if got := p.Launch(true, now, true, rtt); got != 0 || !p.Idle() {
		t.Errorf("an empty batch asks for turns with %d ms; idle %v", got, p.Idle())
	}
	if got := ask(0, false); got != 80 || p.Idle() {
		t.Errorf("after an empty batch the next one asks with %d ms, want 80; idle %v", got, p.Idle())
	}
	if got := ask(time.Second, false); got != 0 {
		t.Errorf("after a pause a batch asks for turns with %d ms", got)
	}
	if got := p.Launch(false, now, true, 0); got != 0 {
		t.Errorf("a writer that does not know its round trip asks with %d ms", got)
	}
}

// TestLosersGoApart: writers that lost the same slot, and know each other, go to different
// free slots, in whatever order they find that out.
func TestLosersGoApart(t *testing.T) {
	const r = 80 * time.Millisecond
	now := time.Now()
	apart := map[journal.Slot]mvcc.WriterID{}
	for me := mvcc.WriterID(1); me <= 8; me++ {
		x := &Turns{me: me, meter: meter{rtt: r}}
		for slot := journal.Slot(1); slot <= 64; slot++ {
			apply(now.Add(-time.Minute), slot, author{writer: mvcc.WriterID(1 + slot%8)}, x)
		}
		free := func(slot journal.Slot) bool { return slot > 66 } // 65 is taken, and 66
		if slot := x.Aim(now, free); slot != 65 {
			t.Errorf("writer %d, which has lost nothing, goes to slot %d, want 65", me, slot)
		}
		x.Appended(2*r, true, now)
		slot := x.Aim(now, free)
		if other := apart[slot]; other != 0 || slot <= 66 || slot > 66+8 {
			t.Errorf("after a loss writer %d goes to slot %d, as writer %d does; want one of the 8 after 66", me, slot, other)
		}
		apart[slot] = me
	}
}
