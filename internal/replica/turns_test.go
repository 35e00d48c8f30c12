package replica

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
)

// apply feeds records to those who take turns: who wrote it, and its round
// trip, 0 if it does not ask for turns.
func apply(now time.Time, slot journal.Slot, s seat, to ...*turns) {
	for _, t := range to {
		t.applied(slot, s.writer, false, s.trip, now)
	}
}

// TestTurnsAgree: writers that know the journal up to different slots hold the
// same view of whose turn a slot is, as far as either may place a record.
func TestTurnsAgree(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	ahead, behind := &turns{me: 1}, &turns{me: 2}
	var records []seat
	now := time.Now()
	checked := 0
	for slot := journal.Slot(1); slot < 5000; slot++ {
		s := seat{writer: mvcc.WriterID(1 + rng.IntN(1+int(slot/500)))}
		if rng.IntN(3) > 0 {
			s.trip = 80 * time.Millisecond
		}
		records = append(records, s)
		apply(now, slot, s, ahead)
		for behind.last+journal.Slot(rng.IntN(span/2)) < slot {
			apply(now, behind.last+1, records[behind.last], behind)
		}
		for s := ahead.last + 1; s <= behind.last+span; s++ {
			if len(ahead.plan[s%span].busy) < 2 {
				continue // whoever is busy by now, as each knows it
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
	x := &turns{me: 1}
	now, slot := time.Now(), journal.Slot(0)
	next := func(by mvcc.WriterID) {
		slot++
		apply(now, slot, seat{by, time.Second}, x)
	}
	for range 2 * span {
		next(mvcc.WriterID(1 + slot%3))
	}
	gone := mvcc.WriterID(2)
	stands := func() (n int) {
		for s := slot + 1; s <= slot+span; s++ {
			if x.standIn(s) == gone {
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
	build := func(me mvcc.WriterID, trip time.Duration) *turns {
		x := &turns{me: me, trip: trip}
		for slot := journal.Slot(1); slot <= 100; slot++ {
			apply(time.Now(), slot, seat{mvcc.WriterID(1 + slot%2), r}, x)
		}
		return x
	}
	// Of two writers 1 and 2, slot n is writer 1's where n is even.
	near := build(2, r)
	if slot, must, ok := near.turn(164, false, all); slot != 101 || !must || !ok {
		t.Errorf("the next slot is ours: %d %v %v", slot, must, ok)
	}
	near = build(1, r)
	if slot, must, ok := near.turn(164, false, all); slot != 102 || must || !ok {
		t.Errorf("the one after the next is ours, if we have something to say: %d %v %v", slot, must, ok)
	}
	if slot, must, ok := near.turn(164, true, all); slot != 102 || !must || !ok {
		t.Errorf("who had nothing to say holds nobody up: %d %v %v", slot, must, ok)
	}
	if slot, _, ok := near.turn(164, false, func(s journal.Slot) bool { return s > 102 }); slot != 0 || !ok {
		t.Errorf("the turn after that must wait: %d %v", slot, ok)
	}
	far := build(1, 5*r)
	if slot, must, _ := far.turn(164, false, func(s journal.Slot) bool { return s > 110 }); slot != 112 || !must {
		t.Errorf("who is far places it ahead: %d %v", slot, must)
	}
	near.said = 90
	if _, must, _ := near.turn(164, true, all); must {
		t.Error("an empty record although nobody has said anything for long")
	}
	if _, _, ok := build(3, r).turn(164, false, all); ok {
		t.Error("a turn for a writer that is not busy")
	}
}

// TestTripOfAnOutage: how long a store was away says nothing of how far it is.
func TestTripOfAnOutage(t *testing.T) {
	const r = 10 * time.Millisecond
	var x turns
	for range 10 {
		x.placed(r, false)
	}
	for range pipeline { // what was under way
		x.placed(35*time.Second, false)
	}
	if x.trip > 2*r {
		t.Errorf("the round trip was %v, and is %v after an outage", r, x.trip)
	}
	for range 100 { // the store has moved away
		x.placed(10*r, false)
	}
	if x.trip < 9*r {
		t.Errorf("the round trip has been %v for long, and is taken for %v", 10*r, x.trip)
	}
	x.placed(r, true)
	if x.trip != r {
		t.Errorf("a batch lost within %v, the round trip is taken for %v", r, x.trip)
	}
}

// TestFillersTakeNoNumber: what fills a hole must never wait for the batches above
// that hole to be applied.
func TestFillersTakeNoNumber(t *testing.T) {
	l := &loop{Replica: &Replica{info: journal.Info{MaxRecord: 1 << 20}}, open: map[mvcc.BatchNumber]*batch{}}
	l.queue.init()
	l.number = 1
	l.open[1] = &batch{number: 1, kind: record.Batch}
	if _, err := l.queue.add(&mvcc.Request{}, l.maxBatch(), time.Time{}); err != nil {
		t.Fatal(err)
	}
	l.number = mvcc.BatchWindow
	for range 2 * mvcc.BatchWindow {
		if b := l.nextBatch(true); b == nil || b.number != 0 || !b.idle() {
			t.Fatalf("the batch that fills is %+v; want one without a number, and with nothing in it", b)
		}
	}
	if b := l.nextBatch(false); b != nil {
		t.Errorf("batch %d, by which number 1 would come too late", b.number)
	}
	delete(l.open, 1)
	if b := l.nextBatch(false); b == nil || b.number != mvcc.BatchWindow+1 || len(b.proposals) != 1 {
		t.Errorf("once number 1 is done the next batch is %+v", b)
	}
}

// TestPickFarFromTheTail: a batch waits for a Read that is under way only where
// that can bring its slot within reach. Others fill slots so fast here that no
// Read ever will.
func TestPickFarFromTheTail(t *testing.T) {
	l := &loop{Replica: &Replica{info: journal.Info{Depth: span}}, state: mvcc.New(), ready: true}
	now := time.Now()
	for slot := journal.Slot(1); slot <= 100; slot++ {
		l.state.Skip(slot)
		l.turns.applied(slot, 2, false, 0, now)
	}
	l.turns.me, l.turns.rate, l.turns.seen = 1, 1000, now
	l.tail.reading = 1
	for _, trip := range []time.Duration{200 * time.Millisecond, time.Second, 8 * time.Second} {
		l.turns.trip = trip
		if slot, _ := l.pick(now); slot <= 100 || slot > 100+span {
			t.Errorf("with a round trip of %v a batch goes to slot %d; want one of the %d after 100", trip, slot, span)
		}
	}
	l.turns.trip, l.turns.seen = 20*time.Millisecond, now.Add(-time.Second)
	if slot, _ := l.pick(now); slot != 0 {
		t.Errorf("a batch goes to slot %d, as seen a second ago; want it to wait for the Read", slot)
	}
}
