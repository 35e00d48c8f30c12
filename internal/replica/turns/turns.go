// Package turns says at which slot a writer places its next batch beside other
// writers, from what the journal holds and how long its answers take. It never
// reads or writes a journal, and safety never depends on what it says: two writers
// that choose the same slot are decided by the store, and a slot that nobody chooses
// is filled later.
//
// Writers that all choose the slot after the tail lose to the nearest writer, always.
// So busy writers say in their records that they are busy, and take turns in the
// order of their IDs. Which writers take turns at a slot follows from the records 64
// and more slots below it, so that all writers agree if two or more asked there; before
// that, each goes by what it has applied, and the store decides. A writer that is far from the
// store takes its turns further ahead of the tail than a near one. See ADR 8.
package turns

import (
	"slices"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
)

const (
	// Span is how many slots past the tail a batch may be placed, and how many
	// slots the request for turns in a record is good for.
	Span = 64
	// brisk is how many slots are looked at to see whether turns are worth while:
	// they are if so many slots pass within 1.5 times as many round trips of the
	// nearest busy writer.
	brisk = 8
	// absence is how many turns in a row of one writer others must have filled
	// before that writer counts as gone, until a record of it is seen.
	absence = 3
	// crowded is the share of lost batches above which a writer without turns
	// keeps out of the others' way.
	crowded = 0.2
	// impatient is how many batches in a row must be lost before no Read is waited
	// for any more.
	impatient = 5
)

// Turns is one writer's view of who takes which slot. Its zero value knows nothing
// yet; New gives it the writer.
type Turns struct {
	me mvcc.WriterID

	last      journal.Slot // the last slot applied
	lastOther journal.Slot // the last slot that another writer's record holds; 0: none. Invariant: <= last
	lastFull  journal.Slot // the last such slot whose record held requests. Invariant: <= lastOther
	heard     time.Time    // when lastOther was applied

	authors   [Span]author          // of the last slots, each at slot%Span
	appliedAt [brisk]time.Time      // when the last slots were applied, each at slot%brisk
	latest    roster                // of the authors
	plan      [Span]roster          // which counts at the slots last+1 to last+Span, each at slot%Span
	missed    map[mvcc.WriterID]int // turns in a row of a writer that others filled. Invariant: > 0

	meter meter
}

// author is the writer of a slot's record, and its round trip if it asks for turns.
type author struct {
	writer mvcc.WriterID // 0: none, the record is void
	trip   time.Duration // 0: it asks for no turns
}

// roster is the authors of Span slots.
type roster struct {
	all  []mvcc.WriterID // in ascending order
	busy []mvcc.WriterID // those that ask for turns, in ascending order
	trip time.Duration   // the shortest round trip of a busy one; 0: none is busy
}

// New returns the turns of a writer whose state is at slot last.
func New(me mvcc.WriterID, last journal.Slot) *Turns { return &Turns{me: me, last: last} }

// Applied notes the record of the next slot: its writer (0 if the record is void),
// whether it is empty, and the round trip of a writer that asks for turns, else 0.
func (t *Turns) Applied(slot journal.Slot, by mvcc.WriterID, empty bool, trip time.Duration, now time.Time) {
	if o := t.owner(slot); o != 0 && o != t.me && o != by {
		if t.missed == nil || len(t.missed) > Span {
			t.missed = map[mvcc.WriterID]int{}
		}
		t.missed[o]++
	}
	delete(t.missed, by)
	t.last = slot
	t.appliedAt[slot%brisk] = now
	t.authors[slot%Span] = author{by, trip}
	if by != t.me && by != 0 {
		t.lastOther, t.heard = slot, now
		if !empty {
			t.lastFull = slot
		}
	}
	if t.lastOther != 0 {
		t.latest = t.rosterOfAuthors()
	}
	t.plan[slot%Span] = t.latest // for slot+Span, which has the same index
}

func (t *Turns) rosterOfAuthors() (r roster) {
	for _, a := range t.authors {
		if a.writer != 0 && !slices.Contains(r.all, a.writer) {
			r.all = append(r.all, a.writer)
		}
		if a.trip == 0 {
			continue
		}
		if !slices.Contains(r.busy, a.writer) {
			r.busy = append(r.busy, a.writer)
		}
		if r.trip == 0 || a.trip < r.trip {
			r.trip = a.trip
		}
	}
	slices.Sort(r.all)
	slices.Sort(r.busy)
	return r
}

// at returns the roster that counts at a slot above the last. If at most one writer
// asked for turns when that roster was fixed, the latest one counts instead.
func (t *Turns) at(slot journal.Slot) *roster {
	if r := &t.plan[slot%Span]; len(r.busy) > 1 {
		return r
	}
	return &t.latest
}

// owner returns the writer whose turn a slot is, or 0 if nobody has turns there.
func (t *Turns) owner(slot journal.Slot) mvcc.WriterID {
	r := t.at(slot)
	if len(r.busy) == 0 {
		return 0
	}
	return r.busy[slot%journal.Slot(len(r.busy))]
}

// Heir returns the writer that is to fill a slot: its owner or, if that writer is
// gone, the owner of the next slot whose owner is not; 0: nobody.
func (t *Turns) Heir(slot journal.Slot) mvcc.WriterID {
	for s := slot; s <= t.last+Span; s++ {
		if w := t.owner(s); t.missed[w] < absence {
			return w
		}
	}
	return 0
}

// LastOther returns the last applied slot that another writer's record holds; 0: none.
func (t *Turns) LastOther() journal.Slot { return t.lastOther }

// Busy returns how many writers ask for turns.
func (t *Turns) Busy() int { return len(t.latest.busy) }

// Contended says whether others have written lately.
func (t *Turns) Contended() bool { return t.lastOther != 0 && t.last < t.lastOther+Span }

// Quiet says whether nothing has come from others for so long that they have nothing
// to write either, or are gone.
func (t *Turns) Quiet(now time.Time) bool { return now.Sub(t.heard) > 2*t.meter.trip }

// InForce says whether turns are taken: several writers are busy, and slots pass so
// fast that turns are worth while.
func (t *Turns) InForce(now time.Time) bool {
	return len(t.latest.busy) > 1 && now.Sub(t.appliedAt[(t.last+1)%brisk]) < brisk*t.latest.trip*3/2
}

// A Choice is where the next batch goes, and whether it has to.
type Choice struct {
	Slot journal.Slot // 0: no batch is to be placed now
	// Must says to fill the slot even if there is no request, because records
	// above the slot wait for it now, or will by the time that the batch is stored.
	Must bool
}

// Next chooses the slot of this writer's next turn, up to reach, among the slots that
// are free. ok is false if this writer has no turn soon, free or not. idle says that this
// writer's last batch was empty: then it fills its turns one round earlier, so that nobody
// waits to learn whether it has requests now.
func (t *Turns) Next(reach journal.Slot, idle bool, free func(journal.Slot) bool) (c Choice, ok bool) {
	slot := t.last + 1
	for slot <= reach && (t.Heir(slot) != t.me || !free(slot)) {
		slot++
	}
	r := t.at(slot)
	round := journal.Slot(len(r.busy))
	near := t.last + t.lead(r) // up to here a batch is due now
	switch {
	case slot > reach || slot > near+2*round:
		return Choice{}, t.hasTurn(near + 2*round)
	case slot > near+round:
		return Choice{}, true
	}
	othersWrite := t.last < t.lastFull+2*round
	return Choice{slot, othersWrite && (slot <= near || idle)}, true
}

// hasTurn says whether this writer has a turn up to a slot.
func (t *Turns) hasTurn(last journal.Slot) bool {
	for slot := t.last + 1; slot <= last; slot++ {
		if t.Heir(slot) == t.me {
			return true
		}
	}
	return false
}

// lead returns how far past the tail this writer's turns are taken. A round of turns
// takes somewhat longer than the shortest round trip of the busy writers. What this
// writer knows of the tail is half a round trip old, and its record takes the other
// half. Meanwhile as many rounds pass as the shortest round trip fits into its own.
func (t *Turns) lead(r *roster) journal.Slot {
	if 2*t.meter.trip < 3*r.trip || r.trip == 0 {
		return 1
	}
	ratio := min(float64(t.meter.trip)/float64(r.trip), Span)
	return journal.Slot(1.2 * ratio * float64(len(r.busy)))
}

// Aim returns the slot for a batch of a writer that has no turn. That is the slot
// after the last. If batches are lost, or one was lost just now, it is past the slots that
// others fill until the batch arrives: the first free slot from there that is this
// writer's by its rank among the IDs of the authors. Writers that lost the same slot so go
// apart.
func (t *Turns) Aim(now time.Time, free func(journal.Slot) bool) journal.Slot {
	m := &t.meter
	pass := m.slotsWithin(now.Sub(m.seen) + m.trip/2)
	quiet := now.Sub(t.appliedAt[t.last%brisk]) > 2*m.trip && now.Sub(m.lostAt) > 3*m.trip
	calm := m.losses < crowded || quiet
	if calm && pass < 1 {
		return t.last + 1
	}
	slot := t.last + 1 + journal.Slot(min(pass, Span)) + journal.Slot(max(0, m.streak-2))
	position, listed := slices.BinarySearch(t.latest.all, t.me)
	writers := len(t.latest.all)
	if !listed {
		writers++
	}
	for int(slot%journal.Slot(writers)) != position || !free(slot) {
		slot++
	}
	return slot
}

// ReadHelps says whether the answer to a Read that is under way can bring a slot into
// reach that is not now. It cannot if others fill more slots meanwhile than reach
// spans, and it is not waited for after many losses in a row.
func (t *Turns) ReadHelps(reach journal.Slot) bool {
	return t.meter.streak < impatient && t.meter.slotsWithin(t.meter.trip) < float64(reach-t.last)
}

// PassIn returns how many slots are filled in so many round trips of this writer, lately.
func (t *Turns) PassIn(trips int) journal.Slot {
	return journal.Slot(t.meter.slotsWithin(time.Duration(trips) * t.meter.trip))
}

// Trip returns the round trip of an Append, as short as it was lately; 0: not known.
func (t *Turns) Trip() time.Duration { return t.meter.trip }

// Appended notes how long an Append took, and whether its batch lost the slot.
func (t *Turns) Appended(took time.Duration, lost bool, now time.Time) {
	t.meter.appended(took, lost, now)
}

// Sighted notes that a Read that was sent at began found tail to be the last slot.
func (t *Turns) Sighted(tail journal.Slot, began, now time.Time) { t.meter.sighted(tail, began, now) }
