package fsck

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
)

// Report is what a check came to. Its JSON form has the fields of its parts in one
// object, and keeps their names; README.md explains them.
type Report struct {
	Journal string `json:"journal,omitempty"` // the journal's ID
	// Applied are the runs of slots that were applied.
	Applied []Run `json:"applied"`
	// TrimmedBelow is the first slot that is not trimmed; 0 if none is.
	TrimmedBelow journal.Slot `json:"trimmedBelow,omitempty"`
	// Incomplete says why the check ended early; empty if it did not.
	Incomplete string `json:"incomplete,omitempty"`

	State
	Counts

	Writers      []Writer   `json:"writers"`
	OtherWriters int        `json:"otherWriterRecords,omitempty"` // records of writers too many to list
	Snapshots    []Snapshot `json:"snapshots"`

	Found
}

// State is the state after the last slot that was applied.
type State struct {
	LastSlot  journal.Slot  `json:"lastSlot"`
	Revision  mvcc.Revision `json:"revision"`
	Compacted mvcc.Revision `json:"compacted"` // the revision compacted to; 0 for never
	Keys      int64         `json:"keys"`
	StateSize int64         `json:"stateBytes"` // of the live keys and values
	Leases    int           `json:"leases"`
	StateHash Hash          `json:"stateHash,omitzero"`
	Chain     Hash          `json:"chain,omitzero"`
}

// Counts are of the records that were applied.
type Counts struct {
	Records        int            `json:"records"`
	Bytes          int64          `json:"bytes"` // of the records
	Batches        int            `json:"batches"`
	Floors         int            `json:"floors"`
	Marks          int            `json:"marks"`
	UncheckedMarks int            `json:"uncheckedMarks"` // of slots whose state is not known here
	VoidRecords    int            `json:"voidRecords"`
	Void           map[string]int `json:"void"`           // by reason: malformed, foreign, other-format, undecodable, seen-before
	Requests       map[string]int `json:"requests"`       // by kind, of all batches
	FailedRequests int            `json:"failedRequests"` // those whose outcome is an error
}

// Run is a run of slots that were applied one after the other.
type Run struct {
	First journal.Slot `json:"first"`
	Last  journal.Slot `json:"last"`
	// FromSnapshot is the slot of the snapshot that the run starts from; 0 if
	// it starts from nothing.
	FromSnapshot journal.Slot `json:"fromSnapshot,omitempty"`
}

// Writer is what one writer wrote: one run of one server.
type Writer struct {
	ID       WriterID     `json:"id"`
	First    journal.Slot `json:"firstSlot"`
	Last     journal.Slot `json:"lastSlot"`
	Batches  int          `json:"batches"`
	Requests int          `json:"requests"`
}

// Snapshot is what a snapshot turned out to be.
type Snapshot struct {
	Slot     journal.Slot   `json:"slot"`
	Status   SnapshotStatus `json:"status"`
	Hash     Hash           `json:"hash,omitzero"`
	Revision mvcc.Revision  `json:"revision,omitempty"`
}

// SnapshotStatus says what became of a snapshot in the check.
type SnapshotStatus string

// Verdicts on a snapshot.
const (
	Verified   SnapshotStatus = "verified"   // the journal gives the same state
	Unverified SnapshotStatus = "unverified" // whole, but the slots before it could not be applied
	Unusable   SnapshotStatus = "unusable"   // not whole: servers pass it over
	Differs    SnapshotStatus = "differs"    // whole, but the journal gives another state
	Disputed   SnapshotStatus = "disputed"   // a server says that it is wrong: none starts from it
	PastTail   SnapshotStatus = "past-tail"  // of a slot that the journal does not have
)

// newReport returns a report of nothing, with no field that JSON calls null.
func newReport() *Report {
	return &Report{
		Applied: []Run{}, Writers: []Writer{}, Snapshots: []Snapshot{},
		Counts: Counts{Void: map[string]int{}, Requests: map[string]int{}},
		Found:  Found{Findings: []Finding{}},
	}
}

// ExitCode returns the exit code of a command that made this report: 0 if the journal is
// sound, 1 if there are errors, 2 if there are none as far as could be checked. Warnings
// do not change it.
func (r *Report) ExitCode() int {
	switch {
	case r.Errors > 0:
		return 1
	case r.Incomplete != "":
		return 2
	}
	return 0
}

// Unopened returns the report on a journal that its driver did not open. Damage that the
// driver found is an error; anything else says nothing of the journal.
func Unopened(err error) *Report {
	r := newReport()
	r.Incomplete = printable(err.Error())
	if errors.Is(err, journal.ErrCorrupt) {
		r.Incomplete = "the journal could not be opened"
		r.add(Finding{Severity: Error, Code: Unopenable, Message: err.Error()})
	}
	return r
}

// set notes the state that cur has come to.
func (st *State) set(ctx context.Context, cur *cursor) (err error) {
	v := cur.state.View()
	st.LastSlot, st.Revision, st.Compacted = v.Slot(), v.Revision(), v.Compacted()
	all, err := v.Read(mvcc.KeyRange{End: mvcc.FromKey}, mvcc.ReadOptions{CountOnly: true})
	if err != nil {
		return err
	}
	st.Keys, st.StateSize = all.Count, cur.state.Bytes()
	cur.state.Leases(func(mvcc.LeaseID, int64, journal.Slot) { st.Leases++ })
	st.Chain = Hash(cur.chains.Last())
	st.StateHash, err = cur.hash(ctx)
	return err
}

// count counts a step.
func (c *Counts) count(s *step) {
	c.Records++
	c.Bytes += int64(s.size)
	if s.void != nil {
		c.VoidRecords++
		c.Void[s.whyVoid()]++
		return
	}
	switch s.head.Kind {
	case record.Batch:
		c.Batches++
		for i := range s.requests {
			c.Requests[kindName(s.requests[i].Kind)]++
			if s.results[i].Err != nil {
				c.FailedRequests++
			}
		}
	case record.Snapshot:
		c.Marks++
	case record.Floor:
		c.Floors++
	}
}

// Hash is a SHA-256; its text is lower-case hex.
type Hash [32]byte

// String is the hash in hex.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText implements encoding.TextMarshaler.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

func (h Hash) short() string { return h.String()[:12] }

// WriterID is an mvcc.WriterID; its text is 16 digits of lower-case hex.
type WriterID mvcc.WriterID

// String is the ID in hex.
func (w WriterID) String() string { return fmt.Sprintf("%016x", uint64(w)) }

// MarshalText implements encoding.TextMarshaler.
func (w WriterID) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// sorted goes through m in the order of its keys.
func sorted[K ~string, V any](m map[K]V) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}

// count is "1 blob", "2 blobs".
func count[N int | int64 | journal.Slot](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if noun[len(noun)-2:] == "ch" {
		noun += "e"
	}
	return strconv.FormatUint(uint64(n), 10) + " " + noun + "s"
}
