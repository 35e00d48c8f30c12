package replica

import (
	"slices"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// turns decides where batches are placed beside other writers. Writers that all
// aim at the slot after the tail lose to the nearest one, always. So writers
// that are busy say so in their records, and take turns in the order of their
// IDs; who is among them at a slot follows from the records span slots and more
// below it, so that all agree. A writer that is far from the journal takes its
// turns further ahead of the tail than a near one. All of it is a matter of
// speed: two who aim at one slot, or at none, are still safe.
type turns struct {
	me     mvcc.WriterID
	last   journal.Slot          // the last slot applied
	others journal.Slot          // the last that another writer holds, ...
	heard  time.Time             // ... applied at this moment
	said   journal.Slot          // the last where another writer had something to say
	seats  [span]seat            // by slot: who holds the last ones
	plan   [span]roster          // by slot: who takes turns at the next ones
	now    roster                // who would, as of the last slot
	missed map[mvcc.WriterID]int // turns of a writer that others filled, in a row
	times  [brisk]time.Time      // by slot: when the last ones were applied

	trip   time.Duration // round trip of an Append, as short as it was lately
	losses float64       // share of our batches that lost their slot, lately
	streak int           // batches lost since one won
	rate   float64       // slots filled a second, lately
	tail   journal.Slot  // the last slot, ...
	seen   time.Time     // ... at this moment
}

// seat is who holds a slot, and its round trip if it asks for turns.
type seat struct {
	writer mvcc.WriterID
	trip   time.Duration
}

// roster is the writers of the last slots, in the order of their IDs.
type roster struct {
	all  []mvcc.WriterID
	busy []mvcc.WriterID // those of them who ask for turns
	trip time.Duration   // the shortest of the busy ones
}

const (
	// span is how far ahead of the tail slots are taken, and for how many slots
	// a busy writer has its turns.
	span = 64
	// brisk is over how many slots it is seen whether turns are worth while:
	// while so many pass in 1.5 times as many of the shortest round trips.
	brisk = 8
	// absence is after how many turns in a row that others had to fill a writer
	// is taken for gone, until a record of it is seen.
	absence = 3
	// crowded is the share of losses above which a writer that has no turns
	// keeps out of the others' way.
	crowded = 0.2
	// weight is what one more observation counts.
	weight = 0.2
)

// applied notes the record of the next slot: who wrote it, whether there is
// anything in it, and the round trip of a writer that asks for turns. by is 0
// for a void record.
func (t *turns) applied(slot journal.Slot, by mvcc.WriterID, empty bool, trip time.Duration, now time.Time) {
	if o := t.owner(slot); o != 0 && o != t.me && o != by {
		if t.missed == nil || len(t.missed) > span {
			t.missed = map[mvcc.WriterID]int{}
		}
		t.missed[o]++
	}
	delete(t.missed, by)
	t.last = slot
	t.times[slot%brisk] = now
	t.seats[slot%span] = seat{by, trip}
	if by != t.me && by != 0 {
		t.others, t.heard = slot, now
		if !empty {
			t.said = slot
		}
	}
	if t.others != 0 {
		t.now = t.reckon()
	}
	t.plan[slot%span] = t.now // of the slot that is span above
}

func (t *turns) reckon() (r roster) {
	for _, s := range t.seats {
		if s.writer != 0 && !slices.Contains(r.all, s.writer) {
			r.all = append(r.all, s.writer)
		}
		if s.trip == 0 {
			continue
		}
		if !slices.Contains(r.busy, s.writer) {
			r.busy = append(r.busy, s.writer)
		}
		if r.trip == 0 || s.trip < r.trip {
			r.trip = s.trip
		}
	}
	slices.Sort(r.all)
	slices.Sort(r.busy)
	return r
}

// at is the roster that counts at a slot above the last. Where nobody had
// turns when it was fixed, those count who have them now.
func (t *turns) at(slot journal.Slot) *roster {
	if r := &t.plan[slot%span]; len(r.busy) > 1 {
		return r
	}
	return &t.now
}

// owner says whose turn a slot is; 0: nobody's.
func (t *turns) owner(slot journal.Slot) mvcc.WriterID {
	r := t.at(slot)
	if len(r.busy) == 0 {
		return 0
	}
	return r.busy[slot%journal.Slot(len(r.busy))]
}

// standIn is the owner of a slot, or where that is gone, of the next one.
func (t *turns) standIn(slot journal.Slot) mvcc.WriterID {
	for s := slot; s <= t.last+span; s++ {
		if w := t.owner(s); t.missed[w] < absence {
			return w
		}
	}
	return 0
}

// contended says that others have written lately.
func (t *turns) contended() bool { return t.others != 0 && t.last < t.others+span }

// quiet says that nothing has come from others for so long that they, too, have
// nothing to say, or are away.
func (t *turns) quiet(now time.Time) bool { return now.Sub(t.heard) > 2*t.trip }

// taken says that turns are being taken: several writers are busy, and slots
// pass so fast that it is worth while.
func (t *turns) taken(now time.Time) bool {
	return len(t.now.busy) > 1 && now.Sub(t.times[(t.last+1)%brisk]) < brisk*t.now.trip*3/2
}

// placed notes how long a batch took to its slot, and whether it lost it.
func (t *turns) placed(took time.Duration, lost bool) {
	if t.trip == 0 || took < t.trip {
		t.trip = took
	}
	if lost { // which may have taken a second question
		t.losses += weight * (1 - t.losses)
		t.streak++
		return
	}
	t.losses -= weight * t.losses
	t.streak = 0
	// What took much longer was asked more than once, or met an outage: that
	// says nothing of how far the journal is.
	t.trip += (min(took, 2*t.trip) - t.trip) / 8
}

// found notes that a Read, sent at began, found this slot to be the last.
func (t *turns) found(tail journal.Slot, began, now time.Time) {
	if t.trip == 0 {
		t.trip = now.Sub(began)
	}
	at := began.Add(now.Sub(began) / 2)
	if since := at.Sub(t.seen); !t.seen.IsZero() {
		if since < t.trip/4 {
			return
		}
		rate := float64(tail-min(tail, t.tail)) / since.Seconds()
		if t.rate == 0 { // whoever comes new must learn from the first look
			t.rate = rate
		}
		t.rate += weight * (rate - t.rate)
	}
	t.tail, t.seen = tail, at
}

// turn is the slot of our next turn, not past reach. must: it is to be filled
// even with nothing to say, because others are waiting or will be when that
// arrives; otherwise one with something to say may go there. 0: not yet. ok is
// false if we have no turn soon. silent says that we had nothing to say at the
// last one, so that nobody need wait whether we have now.
func (t *turns) turn(reach journal.Slot, silent bool, free func(journal.Slot) bool) (slot journal.Slot, must, ok bool) {
	for slot = t.last + 1; slot <= reach; slot++ {
		if t.standIn(slot) == t.me && free(slot) {
			break
		}
	}
	r := t.at(slot)
	round := journal.Slot(len(r.busy))
	lead := t.lead(r)
	must = t.last < t.said+2*round && (slot <= t.last+lead || silent && slot <= t.last+lead+round)
	switch {
	case slot > reach || slot > t.last+lead+2*round:
		return 0, false, false
	case slot > t.last+lead+round:
		return 0, false, true
	}
	return slot, must, true
}

// lead is how far ahead of the tail our turns are taken. One round of turns
// takes somewhat more than the shortest round trip; while our record is under
// way, and what we know of the tail was, so many rounds pass.
func (t *turns) lead(r *roster) journal.Slot {
	if 2*t.trip < 3*r.trip || r.trip == 0 {
		return 1
	}
	ratio := min(float64(t.trip)/float64(r.trip), span)
	return journal.Slot(1.2 * ratio * float64(len(r.busy)))
}

// passing is how many slots are filled in a time.
func (t *turns) passing(d time.Duration) float64 { return t.rate * d.Seconds() }

// aside is the slot for a batch of ours that has no turn: the next, or where
// slots are being lost, past those that others fill until it arrives, and there
// at a place of our own among the writers seen lately.
func (t *turns) aside(now time.Time) journal.Slot {
	pass := t.passing(now.Sub(t.seen) + t.trip/2)
	calm := t.losses < crowded || now.Sub(t.times[t.last%brisk]) > 2*t.trip
	if calm && pass < 1 {
		return t.last + 1
	}
	slot := t.last + 1 + journal.Slot(min(pass, span)) + journal.Slot(max(0, t.streak-2))
	place, known := slices.BinarySearch(t.now.all, t.me)
	writers := len(t.now.all)
	if !known {
		writers++
	}
	for int(slot%journal.Slot(writers)) != place {
		slot++
	}
	return slot
}
