package snapshot

import "github.com/xbernetes/xbernetes/internal/journal"

// Policy says at which slots replicas take a snapshot. It looks at the journal only,
// so that all replicas with the same policy choose the same slots: the replica that
// wrote the record there stores the snapshot, and the others compute its hash.
type Policy struct {
	// EveryBytes is how much journal lies between two snapshots at least; the
	// size of the state, if that is more. 0 for 16 MiB.
	EveryBytes int64
	// RecordWeight is added to every record's length: what reading one more
	// record costs at a restart, in bytes. 0 for 256.
	RecordWeight int64
}

const (
	defaultEveryBytes   = 16 << 20
	defaultRecordWeight = 256
	// retry divides the journal between two snapshots: after that part of it, a
	// snapshot that was missed is due again, and a replica that has as much to
	// replay when it starts takes one.
	retry = 4
)

// Schedule applies a Policy to the records of a journal as they are applied.
type Schedule struct {
	policy Policy
	// weight is of the records since the last snapshot, or since the last mark that
	// named a new slot, whichever came later: marks bring replicas into step whose
	// schedules differ, because they started at different slots.
	// Invariant: weight >= 0.
	weight int64
	owed   bool         // no such mark has come since the last snapshot
	named  journal.Slot // the highest slot that a mark has named
}

// NewSchedule returns the schedule of a replica that starts from a snapshot, or from
// nothing.
func NewSchedule(p Policy) Schedule {
	if p.EveryBytes == 0 {
		p.EveryBytes = defaultEveryBytes
	}
	if p.RecordWeight == 0 {
		p.RecordWeight = defaultRecordWeight
	}
	return Schedule{policy: p}
}

// Marked notes a snapshot mark, which names slot. Call it before Applied of the
// record that is the mark.
func (s *Schedule) Marked(slot journal.Slot) {
	if slot > s.named {
		s.weight, s.owed, s.named = 0, false, slot
	}
}

// Applied notes a record of so many bytes.
func (s *Schedule) Applied(size int) { s.weight += int64(size) + s.policy.RecordWeight }

// Due says whether a snapshot is to be taken now, of a state whose live keys and
// values take so many bytes.
func (s *Schedule) Due(state int64) bool {
	return s.reaches(s.weight, state) || s.owed && s.reaches(retry*s.weight, state)
}

// Missed says, of a replica that has just replayed the journal, whether the servers
// before it ended before they stored a snapshot.
func (s *Schedule) Missed(state int64) bool {
	return s.owed || s.reaches(retry*s.weight, state)
}

// Taken notes that a snapshot is taken now.
func (s *Schedule) Taken() { s.weight, s.owed = 0, true }

func (s *Schedule) reaches(weight, state int64) bool {
	return weight >= max(s.policy.EveryBytes, state)
}
