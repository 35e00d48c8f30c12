package fsck

import (
	"context"
	"errors"
	"fmt"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// cursor is a state on its way through a journal.
type cursor struct {
	id     journal.ID
	state  *mvcc.State
	chains *record.Chains
}

// newCursor stands before slot 1.
func newCursor(id journal.ID) *cursor {
	return &cursor{id: id, state: mvcc.New(), chains: record.NewChains(id)}
}

func (c *cursor) slot() journal.Slot { return c.state.Slot() }

// hash computes the hash of the state.
func (c *cursor) hash(ctx context.Context) (Hash, error) {
	h, err := snapshot.Hash(ctx, c.state.Freeze(), c.chains.Last())
	return Hash(h), err
}

// step is what applying one slot came to.
type step struct {
	slot journal.Slot
	size int // of the record, in bytes
	head record.Header
	void error // why the record changed nothing; nil if it is not void

	requests []mvcc.Request // of a batch
	results  []mvcc.Result
	mark     record.SnapshotMark
	floor    journal.Slot
}

// errSeen: a copy of a batch landed after the batch itself, or so late that nobody can
// tell whether it is one.
var errSeen = errors.New("batch was seen before")

// pruneAtOnce bounds what is looked at after each slot of what compaction left.
const pruneAtOnce = 512

// apply takes in the record of the next slot, by the rules of a replica.
func (c *cursor) apply(rec []byte) step {
	s := step{slot: c.slot() + 1, size: len(rec)}
	var body []byte
	s.head, body, s.void = c.chains.Take(c.id, rec)
	if s.void == nil {
		s.decode(body)
	}
	if s.void != nil || s.head.Kind != record.Batch {
		c.state.Skip(s.slot)
		return s
	}
	in := mvcc.Batch{From: c.id, Writer: s.head.Writer, Number: s.head.Number, Requests: s.requests}
	filler := in.Number == 0 && len(in.Requests) == 0 // it only fills its slot, and is no fault
	if s.results = c.state.Apply(s.slot, &in, false); s.results == nil && !filler {
		s.void = fmt.Errorf("number %d of writer %s: %w", s.head.Number, WriterID(s.head.Writer), errSeen)
	}
	c.state.Prune(pruneAtOnce)
	return s
}

// decode decodes the body of a record that belongs in its slot.
func (s *step) decode(body []byte) {
	switch s.head.Kind {
	case record.Batch:
		s.requests, s.void = mvcc.ParseRequests(body)
	case record.Snapshot:
		s.mark, s.void = record.ParseSnapshotMark(body)
	case record.Floor:
		var m record.FloorMark
		m, s.void = record.ParseFloorMark(body)
		s.floor = m.Slot
	}
}

// whyVoid returns a word for the reason why the record of a step is void.
func (s *step) whyVoid() string {
	switch {
	case errors.Is(s.void, errSeen):
		return "seen-before"
	case errors.Is(s.void, record.ErrForeign), errors.Is(s.void, record.ErrForked):
		return "foreign"
	case errors.Is(s.void, record.ErrMalformed):
		return "malformed"
	case errors.Is(s.void, record.ErrFormat):
		return "other-format"
	}
	return "undecodable"
}

// voidFinding is what there is to say of a void record.
func voidFinding(s *step) Finding {
	f := Finding{Severity: Warning, Code: VoidRecord, Slot: s.slot, Message: s.void.Error()}
	switch {
	case errors.Is(s.void, errSeen):
		f.Severity, f.Code = Info, SeenBefore
	case errors.Is(s.void, record.ErrForked):
		f.Severity, f.Code = Error, OtherHistory
	case errors.Is(s.void, record.ErrFormat):
		f.Severity, f.Code = Error, OtherFormat
	}
	return f
}
