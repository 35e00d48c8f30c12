// Package turns chooses the slot for a writer's next batch, from the records of the journal
// and the time that the journal takes to answer. It never reads or writes a journal, and
// safety never depends on its choice: if two writers choose the same slot, the store
// decides, and a slot that nobody chooses is filled later.
//
// If all writers chose the slot after the tail, the writer nearest to the store would
// always win it. So busy writers ask for turns in their records, and take turns in the
// order of their IDs. Which writers have turns at a slot follows from the records 64 slots
// and more below it. If two or more writers asked for turns there, all writers agree whose
// turn the slot is. If not, each writer goes by the records that it has applied, and the
// store decides. A writer that is far from the store takes its turns further ahead of the
// tail than a near one. See ADR 8.
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
	// brisk is how many slots must be filled within 1.5 times as many round trips of the
	// nearest busy writer for turns to be worth while.
	brisk = 8
	// absence is how many turns in a row a writer must miss (others filled those slots)
	// before it counts as gone. Its next record brings it back.
	absence = 3
	// crowded is the share of lost batches above which a writer without turns aims past
	// the slots that others are about to fill.
	crowded = 0.2
	// impatient is how many batches in a row must be lost before a writer no longer waits
	// for a Read.
	impatient = 5
)

// Turns is one writer's knowledge of which writer's turn each slot is. New makes one.
type Turns struct {
	me mvcc.WriterID

	last      journal.Slot // the last slot applied
	lastOther journal.Slot // the last slot that another writer's record holds; 0: none. Invariant: <= last
	lastFull  journal.Slot // the last such slot whose record held requests. Invariant: <= lastOther
	heard     time.Time    // when lastOther was applied

	authors   [Span]author          // of the last slots, each at slot%Span
	appliedAt [brisk]time.Time      // when the last slots were applied, each at slot%brisk
	latest    roster                // made of the authors
	plan      [Span]roster          // the rosters of the slots last+1 to last+Span, each at slot%Span
	missed    map[mvcc.WriterID]int // how many turns in a row a writer has missed. Invariant: > 0

	meter meter
}

// author is the writer of a slot's record, and its round trip if it asks for turns.
type author struct {
	writer mvcc.WriterID // 0: none, the record is void
	rtt    time.Duration // 0: it asks for no turns
}

// roster is the set of the authors of Span slots.
type roster struct {
	all  []mvcc.WriterID // in ascending order
	busy []mvcc.WriterID // the writers that ask for turns, in ascending order
	rtt  time.Duration   // the shortest round trip of a busy writer; 0: none is busy
}

// New returns the turns of a writer whose state is at slot last.
func New(me mvcc.WriterID, last journal.Slot) *Turns { return &Turns{me: me, last: last} }

// Applied notes the record of the next slot: its writer (0 if the record is void),
// whether it is empty, and the round trip that it names if it asks for turns, else 0.
func (t *Turns) Applied(slot journal.Slot, by mvcc.WriterID, empty bool, rtt time.Duration, now time.Time) {
	if o := t.owner(slot); o != 0 && o != t.me && o != by {
		if t.missed == nil || len(t.missed) > Span {
			t.missed = map[mvcc.WriterID]int{}
		}
		t.missed[o]++
	}
	delete(t.missed, by)
	t.last = slot
	t.appliedAt[slot%brisk] = now
	t.authors[slot%Span] = author{by, rtt}
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
		if a.rtt == 0 {
			continue
		}
		if !slices.Contains(r.busy, a.writer) {
			r.busy = append(r.busy, a.writer)
		}
		if r.rtt == 0 || a.rtt < r.rtt {
			r.rtt = a.rtt
		}
	}
	slices.Sort(r.all)
	slices.Sort(r.busy)
	return r
}

// at returns the roster of a slot above the last: the planned one, or, if it has at most
// one busy writer, the latest.
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

// Heir returns the writer that is to fill a slot: the slot's owner or, if that writer is
// gone, the owner of the next slot whose owner is not gone; 0: nobody.
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

// Quiet says whether the other writers have written nothing for so long that they must
// have nothing to write, or be gone.
func (t *Turns) Quiet(now time.Time) bool { return now.Sub(t.heard) > 2*t.meter.rtt }

// InForce says whether writers take turns: several are busy, and slots are filled so fast
// that turns are worth while.
func (t *Turns) InForce(now time.Time) bool {
	return len(t.latest.busy) > 1 && now.Sub(t.appliedAt[(t.last+1)%brisk]) < brisk*t.latest.rtt*3/2
}

// A Choice is the slot for the next batch.
type Choice struct {
	Slot journal.Slot // 0: no batch is to be placed now
	// Must says to fill the slot even if there is no request, because records
	// above the slot wait for it now, or will by the time that the batch is stored.
	Must bool
}

// Next chooses the slot of this writer's next turn, up to reach, among the slots that are
// free. A cycle is one turn of each busy writer. ok is false if this writer has no turn
// soon, free or not. idle says that this writer's last batch was empty: then it fills its
// turns one cycle earlier, so that nobody waits to learn whether it has requests now.
func (t *Turns) Next(reach journal.Slot, idle bool, free func(journal.Slot) bool) (c Choice, ok bool) {
	slot := t.last + 1
	for slot <= reach && (t.Heir(slot) != t.me || !free(slot)) {
		slot++
	}
	r := t.at(slot)
	cycle := journal.Slot(len(r.busy))
	near := t.last + t.lead(r) // a batch for a slot up to here is due now
	switch {
	case slot > reach || slot > near+2*cycle:
		return Choice{}, t.hasTurn(near + 2*cycle)
	case slot > near+cycle:
		return Choice{}, true
	}
	othersWrite := t.last < t.lastFull+2*cycle
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

// lead returns how many slots past the last this writer takes its turns. A cycle takes
// somewhat longer than the shortest round trip of the busy writers. This writer learns of
// a record half a round trip late, and its own record arrives half a round trip later.
// Meanwhile the others complete as many cycles as their shortest round trip fits into this
// writer's.
func (t *Turns) lead(r *roster) journal.Slot {
	if 2*t.meter.rtt < 3*r.rtt || r.rtt == 0 {
		return 1
	}
	ratio := min(float64(t.meter.rtt)/float64(r.rtt), Span)
	return journal.Slot(1.2 * ratio * float64(len(r.busy)))
}

// Aim returns the slot for a batch of a writer that has no turn: the slot after the last.
// If the writer loses batches, Aim skips the slots that others will fill before the batch
// arrives. Of the free slots after those, it picks one by the rank of the writer's ID among
// the authors, so that writers that lost the same slot choose different slots next.
func (t *Turns) Aim(now time.Time, free func(journal.Slot) bool) journal.Slot {
	m := &t.meter
	pass := m.slotsWithin(now.Sub(m.seen) + m.rtt/2)
	rested := now.Sub(t.appliedAt[t.last%brisk]) > 2*m.rtt && now.Sub(m.lostAt) > 3*m.rtt
	calm := m.losses < crowded || rested
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

// ReadHelps says whether to wait for a Read under way, because it may bring a slot into
// reach. It cannot do so if others fill more slots meanwhile than reach spans. After many
// losses in a row the answer is no.
func (t *Turns) ReadHelps(reach journal.Slot) bool {
	return t.meter.streak < impatient && t.meter.slotsWithin(t.meter.rtt) < float64(reach-t.last)
}

// PassIn returns how many slots were filled lately in so many of this writer's round trips.
func (t *Turns) PassIn(roundTrips int) journal.Slot {
	return journal.Slot(t.meter.slotsWithin(time.Duration(roundTrips) * t.meter.rtt))
}

// RTT returns the round-trip time of an Append, as short as it was lately; 0: not known.
func (t *Turns) RTT() time.Duration { return t.meter.rtt }

// Appended notes how long an Append took, and whether its batch lost the slot.
func (t *Turns) Appended(took time.Duration, lost bool, now time.Time) {
	t.meter.appended(took, lost, now)
}

// Sighted notes that a Read that was sent at began found tail to be the last slot.
func (t *Turns) Sighted(tail journal.Slot, began, now time.Time) { t.meter.sighted(tail, began, now) }
