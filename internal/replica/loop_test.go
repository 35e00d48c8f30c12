package replica

import (
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/replica/turns"
)

// besideAFastWriter returns a loop that has caught up with slot 100 of a journal that writer 2 fills at
// 1,000 slots a second, as a Read found at seen. This writer's round trip is rtt.
func besideAFastWriter(rtt time.Duration, now, seen time.Time) *loop {
	l := &loop{Replica: &Replica{info: journal.Info{Depth: turns.Span}}, window: newWindow(100), turns: turns.New(1, 0)}
	for slot := journal.Slot(1); slot <= 100; slot++ {
		l.turns.Applied(slot, 2, false, 0, now)
	}
	before := seen.Add(-100 * time.Millisecond)
	l.turns.Sighted(0, before, before)
	l.turns.Sighted(100, seen, seen)
	l.turns.Appended(rtt, false, time.Now())
	return l
}

// TestPickFarFromTheTail: a batch waits for a Read that is under way only if that can
// bring its slot within reach. If others fill slots so fast that no Read ever will, it
// goes as far as it may.
func TestPickFarFromTheTail(t *testing.T) {
	now := time.Now()
	for _, rtt := range []time.Duration{200 * time.Millisecond, time.Second, 8 * time.Second} {
		l := besideAFastWriter(rtt, now, now)
		l.reads.underway = 1
		if c := l.pick(now); c.Slot <= 100 || c.Slot > 100+turns.Span {
			t.Errorf("with a round trip of %v a batch goes to slot %d; want one of the %d after 100", rtt, c.Slot, turns.Span)
		}
	}
	l := besideAFastWriter(20*time.Millisecond, now, now.Add(-time.Second))
	l.reads.underway = 1
	if c := l.pick(now); c.Slot != 0 {
		t.Errorf("a batch goes to slot %d, as seen a second ago; want it to wait for the Read", c.Slot)
	}
}

// TestPick: the order of reasons for which a slot is chosen.
func TestPick(t *testing.T) {
	now := time.Now()
	alone := func() *loop {
		return &loop{Replica: &Replica{info: journal.Info{Depth: 8}}, window: newWindow(10), turns: turns.New(1, 10)}
	}
	l := alone()
	if c := l.pick(now); c != (turns.Choice{Slot: 11}) {
		t.Errorf("a writer that is alone goes to %+v, want slot 11", c)
	}
	send(&l.window, l.window.create(nil), 11)
	if c := l.pick(now); c != (turns.Choice{Slot: 12}) {
		t.Errorf("beside a batch in flight the next one goes to %+v, want slot 12", c)
	}
	send(&l.window, l.window.create(nil), 12)
	if c := l.pick(now); c.Slot != 0 {
		t.Errorf("beside %d batches in flight the next one goes to %+v, want it to wait", pipeline, c)
	}
	l.window.lost(l.window.flying[11])
	l.gap.fill = 11
	if c := l.pick(now); c != (turns.Choice{Slot: 11, Must: true}) {
		t.Errorf("with an empty slot below, the next batch goes to %+v, want slot 11, and that it must", c)
	}
	l = alone()
	l.window.learn(18, entry{})
	if c := l.pick(now); c.Slot != 0 {
		t.Errorf("a batch goes to %+v, which is too far past slot 10", c)
	}
}

// TestApart: a writer whose batches follow each other without a pause sends them half a
// round trip apart. Until then, and where a round trip is short, they leave at once.
func TestApart(t *testing.T) {
	const rtt = 80 * time.Millisecond
	now := time.Now()
	l := &loop{Replica: &Replica{info: journal.Info{Depth: 8}}, window: newWindow(10), turns: turns.New(1, 10), soon: time.NewTimer(time.Hour)}
	l.turns.Appended(rtt, false, now)
	b := l.window.create(nil)
	b.sent = now
	send(&l.window, b, 11)
	if c := l.pick(now); c.Slot != 12 {
		t.Errorf("a writer that is not busy goes to %+v, want slot 12 at once", c)
	}
	for range 8 {
		l.pace.Launch(false, now, true, rtt)
	}
	if c := l.pick(now.Add(rtt/2 - 1)); c.Slot != 0 {
		t.Errorf("less than half a round trip after a batch the next one goes to %+v, want it to wait", c)
	}
	if c := l.pick(now.Add(rtt / 2)); c.Slot != 12 {
		t.Errorf("half a round trip after a batch the next one goes to %+v, want slot 12", c)
	}
	l.turns.Appended(longRTT/2, false, now)
	if c := l.pick(now); c.Slot != 12 {
		t.Errorf("with a short round trip the next batch goes to %+v, want slot 12 at once", c)
	}
}

// TestHole: the slots that are filled because records above them wait.
func TestHole(t *testing.T) {
	now := time.Now()
	l := &loop{Replica: &Replica{info: journal.Info{Depth: 8}}, window: newWindow(10), turns: turns.New(1, 9)}
	l.turns.Applied(10, 2, false, 0, now)
	l.turns.Appended(time.Second, false, time.Now())
	l.window.learn(15, entry{})
	want := func(what string, now time.Time, slot journal.Slot) {
		t.Helper()
		if got := l.hole(now); got != slot {
			t.Errorf("%s slot %d is filled, want %d", what, got, slot)
		}
	}
	want("before a Read has seen a gap", now, 0)
	l.gap.fill = 11
	want("once a Read has seen it empty", now, 11)
	send(&l.window, newFiller(), 11)
	want("while others write", now, 0)
	want("once others are quiet", now.Add(time.Minute), 12)
	send(&l.window, newFiller(), 12)
	want("once others are quiet", now.Add(time.Minute), 13)
	send(&l.window, newFiller(), 13)
	send(&l.window, newFiller(), 14)
	l.window.landed(send(&l.window, newFiller(), 17))
	want("below a filler, which waits for nothing,", now.Add(time.Minute), 0)
	l.window.learn(18, entry{})
	want("below another writer's record", now.Add(time.Minute), 16)
	l.window.learn(11, entry{})
	l.window.apply()
	want("once the gap is filled", now.Add(time.Minute), 0)
}

// TestGap: the steps before an empty slot is filled.
func TestGap(t *testing.T) {
	var g gap
	now := time.Now()
	if !g.leave(7, now, time.Second) || !g.leave(7, now.Add(time.Second-1), time.Second) || g.leave(7, now.Add(time.Second), time.Second) {
		t.Error("a slot is to be left to another writer for a second")
	}
	if !g.leave(8, now.Add(time.Second), time.Second) {
		t.Error("the next slot is to be left for a second of its own")
	}
	if !g.examine(8) || g.examine(8) || g.fill != 0 {
		t.Errorf("a slot is to be examined once before it is filled: %+v", g)
	}
	g.cleared(8, false)
	if g.fill != 0 {
		t.Error("a slot that is held meanwhile is filled")
	}
	if g.examine(8) || g.fill != 8 {
		t.Errorf("a slot that was never held is to be filled without being examined again: %+v", g)
	}
	g.fill = 0
	g.cleared(9, true)
	if g.fill != 9 {
		t.Error("a slot that was never held, and is empty, is not filled")
	}
}
