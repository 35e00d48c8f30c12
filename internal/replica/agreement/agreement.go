// Package agreement holds what the snapshot marks of a journal say of some states against
// what this replica has computed. It decides who may be wrong and which snapshots can be
// trusted. It never reads or writes anything, and keeps no state of its own.
//
// A snapshot is the word of one replica, and a replica may be wrong: a bit of its
// memory may have changed. So a replica whose hash differs from another's believes
// neither. It makes the state anew, from records and an older snapshot, and stops if it
// turns out to be wrong. If not, it says so beside the snapshot, so that nobody starts
// from it, and in the journal, so that the writer of the other hash makes its state
// anew too.
package agreement

import (
	"crypto/sha256"
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
	// marks are the last that the journal holds. Invariant: in the order of their
	// records; len <= keptMarks.
	marks []Mark
	// remaking: a state is being made anew, to see whether this replica is wrong. It
	// stores no snapshot meanwhile.
	remaking bool
}

// Mark is a record that says what hash the state at a slot has.
type Mark struct {
	record.SnapshotMark
	Writer mvcc.WriterID
	At     journal.Slot // the slot of the record
	// seconded: another replica than the writer has computed the same hash.
	seconded bool
}

// ownHash is the hash of this replica's state at a slot.
type ownHash struct {
	sum    [sha256.Size]byte
	loaded bool   // it came with a snapshot, and was not computed from records
	doubt  doubts // whether another replica's hash differs
}

// doubts is what came of another replica's hash that differs.
type doubts int

const (
	undoubted doubts = iota // none differs, or nothing was done about it yet
	doubted                 // the state is being made anew
	confirmed               // the state was made anew, with the same hash
)

const (
	// keptMarks is how many of the last marks are kept.
	keptMarks = 16
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

// Marked notes a mark.
func (a *Agreement) Marked(m Mark) {
	if len(a.marks) == keptMarks {
		a.marks = slices.Delete(a.marks, 0, 1)
	}
	a.marks = append(a.marks, m)
}

// Heard notes that the record of a writer, anchored there, agrees with the newest mark
// up to the anchor. It says whether the mark has two replicas behind it only now.
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
	Remake   bool // another hash was seen: make the state anew to see who is wrong
	Diverged bool // both sides are sure of their hashes, and this one is alone
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

// Judge holds the marks of a slot against this replica's hash there, if there is one.
//
// Both sides are sure if this replica has made its state anew, with the same outcome,
// and another one has done so too: that one wrote a second mark with its own hash. If
// no other replica has this one's hash, this one stops.
func (a *Agreement) Judge(slot journal.Slot) Verdict {
	own, ok := a.own[slot]
	if !ok {
		return Verdict{}
	}
	against := map[mvcc.WriterID]int{} // how many marks of each writer have another hash
	alike, backed, othersSure := false, false, false
	for _, m := range a.marks {
		switch {
		case m.Slot != slot:
		case m.Hash == own.sum:
			alike = true
			backed = backed || m.Writer != a.me
		default:
			against[m.Writer]++
			othersSure = othersSure || against[m.Writer] > 1
		}
	}
	return Verdict{
		Agreed:   alike && !own.loaded,
		Remake:   len(against) > 0 && own.doubt == undoubted && !a.remaking,
		Diverged: own.doubt == confirmed && othersSure && !backed,
	}
}

// Doubt notes that the state at a slot is being made anew.
func (a *Agreement) Doubt(slot journal.Slot) {
	own := a.own[slot]
	own.doubt = doubted
	a.own[slot], a.remaking = own, true
}

// Confirm notes that the state at a slot was made anew, with the same hash.
func (a *Agreement) Confirm(slot journal.Slot, sum [sha256.Size]byte) {
	a.own[slot], a.remaking = ownHash{sum: sum, doubt: confirmed}, false
}

// Agrees says whether this replica has computed the hash that the newest mark names.
// Every record of this writer tells that to the others.
func (a *Agreement) Agrees() bool {
	if len(a.marks) == 0 {
		return false
	}
	m := a.marks[len(a.marks)-1]
	own, ok := a.own[m.Slot]
	return ok && !own.loaded && own.sum == m.Hash
}

// Trusted says whether the snapshot at slot may replace what it was made from: this
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
