package notify

import (
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
)

const (
	// grace is how long a hint may come after its record was found otherwise, or a
	// record after its hint. A record may be unreadable for seconds while a slot
	// below it is empty.
	grace = 5 * time.Second
	// regain is how many hints in a row must be true before hints are relied on again.
	regain = 10
	// quiet is how long nothing was found before what is found is judged: a replica
	// that catches up finds many records of which no hint comes any more.
	quiet = time.Second
	// maxCredit is how many hints may wake a replica at once without a record being
	// found; after that, hints wake it once per refill.
	maxCredit = 10
	refill    = time.Second
)

// Counts are the fates of hints since the start.
type Counts struct {
	Received uint64 // hints that came, of whatever worth
	Woke     uint64 // hints that made the replica read
	Late     uint64 // hints of slots that the replica knew
	Useless  uint64 // hints of slots that did not turn up
	Lost     uint64 // times that a record was found of which no hint came
	Failed   uint64 // times that the source went down
}

// trust judges whether hints can be relied on, by comparing what is heard with what is
// found. It has no clock: callers say what time it is. Hints that are forged, late or
// missing change only how often the journal is polled.
type trust struct {
	up     bool      // the source says that it receives
	upAt   time.Time // since when
	lost   bool      // a hint was missing or false, and less than regain true ones came since
	streak int       // true hints since then. Invariant: 0 <= streak < regain
	counts Counts

	known   journal.Slot // all slots up to it were read or written by this replica
	foundAt time.Time    // when it last read one

	heard   journal.Slot // the slot of the last hint of an unknown slot; 0: there is none
	heardAt time.Time    // when it was heard, or records below it were found since

	missing journal.Slot // a slot that was found before any hint of it; 0: there is none
	since   time.Time

	credit   int // wakes that hints have left. Invariant: 0 <= credit <= maxCredit
	refilled time.Time
}

// relied says whether hints are relied on, so that polling may be slow.
func (t *trust) relied() bool { return t.up && !t.lost }

// hear takes in a hint, and says whether it is a reason to read.
func (t *trust) hear(slot journal.Slot, now time.Time) bool {
	t.counts.Received++
	if t.missing != 0 && slot >= t.missing {
		t.missing = 0
		t.proved()
	}
	if slot <= t.known {
		t.counts.Late++
		return false
	}
	t.heard, t.heardAt = slot, now
	return true
}

// wrote takes in that a record of this replica is stored at slot. No hint of it comes.
func (t *trust) wrote(slot journal.Slot) {
	if slot == t.known+1 {
		t.known = slot // above an empty slot, a hint of that slot is still worth a Read
	}
	if slot == t.missing {
		t.missing = 0 // a Read found the record before its Append returned
	}
}

// found takes in that the records up to slot were read.
func (t *trust) found(slot journal.Slot, now time.Time) {
	if slot <= t.known {
		return
	}
	judged := t.up && now.Sub(t.upAt) >= grace && now.Sub(t.foundAt) >= quiet
	t.known, t.foundAt = slot, now
	t.credit = min(t.credit+1, maxCredit)
	switch {
	case t.heard == 0:
		if judged && t.missing == 0 {
			t.missing, t.since = slot, now
		}
	case slot >= t.heard:
		t.heard = 0
		t.proved()
	default:
		t.heardAt = now // the replica is on its way to the slot of the hint
	}
}

// proved takes in that a hint was true.
func (t *trust) proved() {
	if !t.lost {
		return
	}
	if t.streak++; t.streak == regain {
		t.lost, t.streak = false, 0
	}
}

// spend says whether a hint may wake the replica now, and counts it if so.
func (t *trust) spend(now time.Time) bool {
	if n := int(now.Sub(t.refilled) / refill); n > 0 {
		t.credit, t.refilled = min(t.credit+n, maxCredit), now
	}
	if t.credit == 0 {
		return false
	}
	t.credit--
	t.counts.Woke++
	return true
}

// expire judges what has been waited for long enough. It returns why hints are not
// relied on any more; "": nothing changed.
func (t *trust) expire(now time.Time) (why string) {
	relied := !t.lost
	if t.missing != 0 && now.Sub(t.since) >= grace {
		t.missing = 0
		t.counts.Lost++
		t.lost, t.streak, why = true, 0, "a record was found of which no notification came"
	}
	if t.heard != 0 && now.Sub(t.heardAt) >= grace {
		t.heard = 0
		t.counts.Useless++
		t.lost, t.streak, why = true, 0, "a notification told of a record that is not in the journal"
	}
	if !relied {
		return ""
	}
	return why
}
