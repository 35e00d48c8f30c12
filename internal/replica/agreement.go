package replica

import (
	"crypto/sha256"
	"slices"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
)

// agreement holds what the journal says of the states at some slots against what this
// replica has computed. It decides, and reads or writes nothing.
//
// A snapshot is the word of one replica, and a replica may be wrong: a bit of its
// memory may have changed. So a replica whose hash differs from another's believes
// neither. It makes the state anew, from records and an older snapshot, and stops if it
// turns out to be wrong. If not, it says so beside the snapshot, so that nobody starts
// from it, and in the journal, so that the writer of the other hash makes its state
// anew too.
type agreement struct {
	me mvcc.WriterID
	// own are the hashes of this replica's states, by slot.
	own map[journal.Slot]ownHash
	// marks are the last that the journal holds. Invariant: in the order of their
	// records; len <= keptMarks.
	marks []mark
	// remaking: a state is being made anew, to see whether this replica is wrong. It
	// stores no snapshot meanwhile.
	remaking bool
}

// mark is what the journal says of the state at a slot.
type mark struct {
	record.SnapshotMark
	writer mvcc.WriterID
	at     journal.Slot // the slot of the record
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
	// keptMarks is how many of the last marks are remembered.
	keptMarks = 16
	// keptOwn is for how many slots below the newest snapshot own hashes are kept.
	keptOwn = 64 * record.AnchorSpan
)

// newAgreement returns the agreement of a replica that starts from a snapshot, or from
// nothing.
func newAgreement(me mvcc.WriterID, from restored) agreement {
	a := agreement{me: me, own: map[journal.Slot]ownHash{}}
	if slot := from.state.Slot(); slot > 0 {
		a.own[slot] = ownHash{sum: from.hash, loaded: true}
	}
	return a
}

// computed notes the hash of this replica's state at a slot.
func (a *agreement) computed(slot journal.Slot, sum [sha256.Size]byte) {
	for s := range a.own {
		if s+keptOwn < slot {
			delete(a.own, s)
		}
	}
	a.own[slot] = ownHash{sum: sum}
}

// marked notes a mark.
func (a *agreement) marked(m mark) {
	if len(a.marks) == keptMarks {
		a.marks = slices.Delete(a.marks, 0, 1)
	}
	a.marks = append(a.marks, m)
}

// heard notes that the record of a writer, anchored there, agrees with the newest mark
// up to the anchor. It says whether the mark has two replicas behind it only now.
func (a *agreement) heard(from mvcc.WriterID, anchor journal.Slot) bool {
	for i := len(a.marks) - 1; i >= 0; i-- {
		m := &a.marks[i]
		if m.at > anchor {
			continue
		}
		if m.writer == from || m.seconded {
			return false
		}
		m.seconded = true
		return true
	}
	return false
}

// verdict is what the marks of a slot mean for this replica.
type verdict struct {
	agreed   bool // a mark has the hash that this replica computed from records
	remake   bool // another hash was seen: make the state anew to see who is wrong
	diverged bool // both sides are sure of their hashes, and this one is alone
}

// judge holds the marks of a slot against this replica's hash there, if there is one.
//
// Both sides are sure if this replica has made its state anew, with the same outcome,
// and another one has done so too: that one wrote a second mark with its own hash. If
// no other replica has this one's hash, this one stops.
func (a *agreement) judge(slot journal.Slot) verdict {
	own, ok := a.own[slot]
	if !ok {
		return verdict{}
	}
	against := map[mvcc.WriterID]int{} // how many marks of each writer have another hash
	alike, backed, othersSure := false, false, false
	for _, m := range a.marks {
		switch {
		case m.Slot != slot:
		case m.Hash == own.sum:
			alike = true
			backed = backed || m.writer != a.me
		default:
			against[m.writer]++
			othersSure = othersSure || against[m.writer] > 1
		}
	}
	return verdict{
		agreed:   alike && !own.loaded,
		remake:   len(against) > 0 && own.doubt == undoubted && !a.remaking,
		diverged: own.doubt == confirmed && othersSure && !backed,
	}
}

// doubt notes that the state at a slot is being made anew.
func (a *agreement) doubt(slot journal.Slot) {
	own := a.own[slot]
	own.doubt = doubted
	a.own[slot], a.remaking = own, true
}

// confirm notes that the state at a slot was made anew, with the same hash.
func (a *agreement) confirm(slot journal.Slot, sum [sha256.Size]byte) {
	a.own[slot], a.remaking = ownHash{sum: sum, doubt: confirmed}, false
}

// agrees says whether this replica has computed the hash that the newest mark names.
// Every record of this writer tells that to the others.
func (a *agreement) agrees() bool {
	if len(a.marks) == 0 {
		return false
	}
	m := a.marks[len(a.marks)-1]
	own, ok := a.own[m.Slot]
	return ok && !own.loaded && own.sum == m.Hash
}

// trusted says whether the snapshot at slot may replace what it was made from: this
// replica has computed its hash, and so has another one, unless this one is alone.
func (a *agreement) trusted(slot journal.Slot, alone bool) bool {
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
		trust = trust || m.seconded || m.writer != a.me || alone
	}
	return trust
}

// newestTrusted returns the newest snapshot that is trusted; 0: none.
func (a *agreement) newestTrusted(alone bool) journal.Slot {
	for i := len(a.marks) - 1; i >= 0; i-- {
		if slot := a.marks[i].Slot; a.trusted(slot, alone) {
			return slot
		}
	}
	return 0
}
