// Package agreement compares the hashes in the journal's snapshot marks with the hashes
// that this replica has computed. It decides which replicas may be wrong and which
// snapshots can be trusted. It never reads or writes anything, and keeps no state of its
// own.
//
// A snapshot comes from one replica, and that replica may be wrong: a bit of its memory
// may have changed. If a replica's hash differs from another's, it believes neither:
//
//  1. It writes a mark with its own hash at once: its claim. The mark of the replica that
//     stored the snapshot is that replica's claim. So all replicas whose hashes differ
//     learn of each other.
//  2. It makes the state anew, from records and a snapshot that two replicas agreed on, or
//     from the beginning. If it was wrong, it stops.
//  3. If it was right, it is sure, and writes a second mark. It goes on if more replicas claim its
//     hash than any other hash of which a replica is sure. If as many do, or fewer, it
//     waits a while for the claims of others, and then stops.
//
// Invariant: two replicas that are sure of different hashes do not both go on. If each side
// has one replica, both stop, because the journal cannot tell which one is right. A
// snapshot that may be wrong is disputed, so that no replica starts from it.
package agreement

import (
	"crypto/sha256"
	"maps"
	"slices"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
)

// Agreement is one replica's view of what the marks say.
type Agreement struct {
	me mvcc.WriterID
	// own are the hashes of this replica's states, by slot.
	own map[journal.Slot]ownHash
	// marks are the journal's last marks, and the marks of slots that were doubted.
	// Invariant: in the order of their records; len <= keptMarks.
	marks []Mark
	// remaking: a state is being made anew, to see whether this replica is wrong. The
	// replica stores no snapshot meanwhile.
	remaking bool
}

// Mark is a record that says what hash the state at a slot has.
type Mark struct {
	record.SnapshotMark
	Writer mvcc.WriterID
	Number mvcc.BatchNumber // of the record, among its writer's
	At     journal.Slot     // the slot of the record
	// seconded: a replica other than the writer has computed the same hash.
	seconded bool
}

// ownHash is the hash of this replica's state at a slot.
type ownHash struct {
	sum    [sha256.Size]byte
	loaded bool   // it came with a snapshot, and was not computed from records
	said   bool   // a mark of this replica with it is in the journal, or on its way
	doubt  doubts // whether another replica's hash differs
}

// doubts says how far this replica has come in checking a hash that another one denies.
type doubts int

const (
	undoubted doubts = iota // none differs, or nothing was done about it yet
	doubted                 // the state is being made anew
	confirmed               // the state was made anew, with the same hash
	awaiting                // confirmed, and this replica waits for the claims of others
)

const (
	// keptMarks is how many marks are kept: room for two of each of 32 replicas.
	keptMarks = 64
	// keptOwn is for how many slots below the newest snapshot own hashes are kept.
	keptOwn = 64 * record.AnchorSpan
)

// New returns the agreement of a writer that has computed nothing yet.
func New(me mvcc.WriterID) *Agreement {
	return &Agreement{me: me, own: map[journal.Slot]ownHash{}}
}

// Loaded notes the hash of a snapshot that this replica started from.
func (a *Agreement) Loaded(slot journal.Slot, sum [sha256.Size]byte) {
	a.own[slot] = ownHash{sum: sum, loaded: true}
}

// Computed notes the hash of this replica's state at a slot.
func (a *Agreement) Computed(slot journal.Slot, sum [sha256.Size]byte) {
	for s := range a.own {
		if s+keptOwn < slot {
			delete(a.own, s)
		}
	}
	a.own[slot] = ownHash{sum: sum}
}

// Marked notes a mark. A record that landed twice counts once.
func (a *Agreement) Marked(m Mark) {
	if slices.ContainsFunc(a.marks, func(n Mark) bool { return n.Writer == m.Writer && n.Number == m.Number }) {
		return
	}
	if len(a.marks) == keptMarks {
		// Making a state anew may take longer than many marks: those of its slot stay.
		oldest := max(0, slices.IndexFunc(a.marks, func(n Mark) bool { return a.own[n.Slot].doubt == undoubted }))
		a.marks = slices.Delete(a.marks, oldest, oldest+1)
	}
	a.marks = append(a.marks, m)
}

// Heard notes that a writer's record, anchored at anchor, agrees with the newest mark up to
// the anchor. It returns true if the mark thereby gets its second replica.
func (a *Agreement) Heard(from mvcc.WriterID, anchor journal.Slot) bool {
	for i := len(a.marks) - 1; i >= 0; i-- {
		m := &a.marks[i]
		if m.At > anchor {
			continue
		}
		if m.Writer == from || m.seconded {
			return false
		}
		m.seconded = true
		return true
	}
	return false
}

// Verdict is what the marks of a slot mean for this replica.
type Verdict struct {
	Agreed   bool // a mark has the hash that this replica computed from records
	Claim    bool // a different hash was just seen for the first time: write a mark with this replica's hash
	Remake   bool // a different hash was just seen for the first time: make the state anew to see which replica is wrong
	Outvoted bool // both sides are sure, and this replica's hash has no more claims than the other
}

// Own returns the hash of this replica's state at a slot, or zeros if it has none.
func (a *Agreement) Own(slot journal.Slot) [sha256.Size]byte { return a.own[slot].sum }

// OwnHashes returns the hashes of all states of this replica, by slot.
func (a *Agreement) OwnHashes() map[journal.Slot][sha256.Size]byte {
	out := make(map[journal.Slot][sha256.Size]byte, len(a.own))
	for slot, own := range a.own {
		out[slot] = own.sum
	}
	return out
}

// Remaking says whether a state is being made anew.
func (a *Agreement) Remaking() bool { return a.remaking }

// Judge compares the marks of a slot with this replica's hash there, if there is one.
func (a *Agreement) Judge(slot journal.Slot) Verdict {
	own, ok := a.own[slot]
	if !ok {
		return Verdict{}
	}
	sides := a.sides(slot)
	mine := sides[own.sum]
	v := Verdict{Agreed: len(mine) > 0 && !own.loaded}
	for hash, other := range sides {
		if hash == own.sum {
			continue
		}
		if own.doubt == undoubted && a.unheardOf(other) {
			v.Claim, v.Remake = !own.said, !a.remaking
		}
		v.Outvoted = v.Outvoted || mine[a.me] >= sure && other.isSure() && len(other) >= len(mine)
	}
	return v
}

// side is the replicas that claim one hash of a slot, with how many marks each has written.
type side map[mvcc.WriterID]int

// sure is how many marks a replica writes by the time that it has made its state anew.
const sure = 2

func (s side) isSure() bool {
	for _, marks := range s {
		if marks >= sure {
			return true
		}
	}
	return false
}

// unheardOf says whether one of the replicas has not yet been on another side at a slot in
// doubt. If all have, their marks of a later slot say nothing new.
func (a *Agreement) unheardOf(other side) bool {
	unheard := maps.Clone(other)
	for _, m := range a.marks {
		if own := a.own[m.Slot]; own.doubt != undoubted && m.Hash != own.sum {
			delete(unheard, m.Writer)
		}
	}
	return len(unheard) > 0
}

// sides returns, by hash, which replicas claim it for a slot.
func (a *Agreement) sides(slot journal.Slot) map[[sha256.Size]byte]side {
	out := map[[sha256.Size]byte]side{}
	for _, m := range a.marks {
		if m.Slot != slot {
			continue
		}
		if out[m.Hash] == nil {
			out[m.Hash] = side{}
		}
		out[m.Hash][m.Writer]++
	}
	return out
}

// Said notes that a mark of this replica, with its hash at a slot, is on its way.
func (a *Agreement) Said(slot journal.Slot) {
	own := a.own[slot]
	own.said = true
	a.own[slot] = own
}

// Doubt notes that the state at a slot is being made anew.
func (a *Agreement) Doubt(slot journal.Slot) {
	own := a.own[slot]
	own.doubt = doubted
	a.own[slot], a.remaking = own, true
}

// Confirm notes that the state at a slot was made anew, with the same hash.
func (a *Agreement) Confirm(slot journal.Slot, sum [sha256.Size]byte) {
	a.own[slot], a.remaking = ownHash{sum: sum, said: a.own[slot].said, doubt: confirmed}, false
}

// Wait notes that this replica waits for the claims of others on a slot, and says whether
// it did not before.
func (a *Agreement) Wait(slot journal.Slot) bool {
	own := a.own[slot]
	first := own.doubt != awaiting
	own.doubt = awaiting
	a.own[slot] = own
	return first
}

// Agrees says whether this replica has computed the hash that the newest mark names.
// Every record of this writer carries the answer to the others.
func (a *Agreement) Agrees() bool {
	if len(a.marks) == 0 {
		return false
	}
	m := a.marks[len(a.marks)-1]
	own, ok := a.own[m.Slot]
	return ok && !own.loaded && own.sum == m.Hash
}

// Trusted says whether the snapshot at slot may replace the records that it covers: this
// replica has computed its hash, and so has another one, unless this one is alone.
func (a *Agreement) Trusted(slot journal.Slot, alone bool) bool {
	own, ok := a.own[slot]
	if !ok || own.loaded {
		return false
	}
	trust := false
	for _, m := range a.marks {
		if m.Slot != slot {
			continue
		}
		if m.Hash != own.sum {
			return false
		}
		trust = trust || m.seconded || m.Writer != a.me || alone
	}
	return trust
}

// NewestTrusted returns the newest snapshot that is trusted; 0: none.
func (a *Agreement) NewestTrusted(alone bool) journal.Slot {
	for i := len(a.marks) - 1; i >= 0; i-- {
		if slot := a.marks[i].Slot; a.Trusted(slot, alone) {
			return slot
		}
	}
	return 0
}
