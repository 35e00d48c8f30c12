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

// step is what one slot came to.
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

// errSeen: a copy of a batch landed after the batch itself, or so late that
// nobody can tell.
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
	filler := in.Number == 0 && len(in.Requests) == 0 // it does what it is for
	if s.results = c.state.Apply(s.slot, &in, false); s.results == nil && !filler {
		s.void = fmt.Errorf("number %d of writer %s: %w", s.head.Number, WriterID(s.head.Writer), errSeen)
	}
	c.state.Prune(pruneAtOnce)
	return s
}

// decode decodes the body of a record that belongs where it is.
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

func (c *cursor) hash(ctx context.Context) (Hash, error) {
	h, err := snapshot.Hash(ctx, c.state.Freeze(), c.chains.Last())
	return Hash(h), err
}

// resume returns a cursor on the oldest usable snapshot that lies behind
// after, and after which slots can be read; nil if there is none.
func (c *checker) resume(ctx context.Context, after journal.Slot) (*cursor, error) {
	cur, dropped, err := c.tryResume(ctx, after)
	if cur == nil && dropped {
		if err = c.checkSnapshots(ctx); err == nil {
			cur, _, err = c.tryResume(ctx, after)
		}
	}
	return cur, err
}

// tryResume is resume with the snapshots that are known. dropped says that one
// of them is not there any more.
func (c *checker) tryResume(ctx context.Context, after journal.Slot) (cur *cursor, dropped bool, err error) {
	for _, sn := range c.report.Snapshots { // oldest first
		if sn.Slot <= after || sn.Status == Unusable || sn.Status == Disputed {
			continue
		}
		_, err := c.store.Read(ctx, sn.Slot+1, 1)
		if errors.Is(err, journal.ErrTrimmed) || errors.Is(err, journal.ErrCorrupt) {
			continue
		}
		if err != nil {
			return nil, dropped, err
		}
		content, err := snapshot.Load(ctx, c.store, c.id, sn.Slot)
		if badSnapshot(err) {
			dropped = true
			continue
		}
		if err != nil {
			return nil, dropped, err
		}
		c.hashes[sn.Slot] = content.Hash // as it claims: marks may confirm it
		c.due = snapshot.NewSchedule(c.opts.Policy)
		return &cursor{c.id, content.State, content.Chains}, dropped, nil
	}
	return nil, dropped, nil
}

// checkTrimmed finds where the journal starts, and looks for floor records in
// the slots from there on that next skips.
func (c *checker) checkTrimmed(ctx context.Context, next *cursor) error {
	first, err := First(ctx, c.store)
	if err != nil {
		return err
	}
	c.report.TrimmedBelow = first
	for slot := first; next != nil && slot <= next.slot(); {
		recs, err := c.read(ctx, slot)
		if err != nil && !errors.Is(err, journal.ErrCorrupt) {
			return err
		}
		if err != nil || len(recs) == 0 {
			break
		}
		for _, rec := range recs {
			if h, body, err := record.Parse(rec); err == nil && h.Journal == c.id && h.Kind == record.Floor {
				if m, err := record.ParseFloorMark(body); err == nil {
					c.floor = max(c.floor, m.Slot)
				}
			}
		}
		slot += journal.Slot(len(recs))
		c.progress(PhaseSlots, slot-1)
	}
	return nil
}

// checkLateMarks applies slots once more, up to those that marks name and that
// were not hashed the first time.
func (c *checker) checkLateMarks(ctx context.Context) error {
	c.bytes = 0
	for _, sp := range c.spans {
		last := journal.Slot(0)
		for slot := range c.late {
			if slot > sp.start && slot <= sp.end {
				last = max(last, slot)
			}
		}
		if last == 0 {
			continue
		}
		cur := newCursor(c.id)
		if sp.start > 0 {
			content, err := snapshot.Load(ctx, c.store, c.id, sp.start)
			if badSnapshot(err) { // dropped since
				c.report.UncheckedMarks += len(c.late)
				continue
			}
			if err != nil {
				return err
			}
			cur = &cursor{c.id, content.State, content.Chains}
		}
		if err := c.markAgain(ctx, cur, last); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) markAgain(ctx context.Context, cur *cursor, last journal.Slot) error {
	for cur.slot() < last {
		recs, err := c.read(ctx, cur.slot()+1)
		if err != nil {
			return err
		}
		if len(recs) == 0 {
			return fmt.Errorf("slot %d was there and is not any more", cur.slot()+1)
		}
		for _, rec := range recs {
			cur.apply(rec)
			marks := c.late[cur.slot()]
			if marks == nil {
				continue
			}
			h, err := cur.hash(ctx)
			if err != nil {
				return err
			}
			for _, m := range marks {
				c.compareMark(m, h)
			}
			delete(c.late, cur.slot())
		}
		c.progress(PhaseMarks, cur.slot())
	}
	return nil
}

// lookBeyond looks for a record behind the empty slot after the tail that proves
// that the slot was held: its writer had applied what the slot held, or it lies
// farther than anybody appends. Other records there are of writers that were
// ahead of one that ended.
func (c *checker) lookBeyond(ctx context.Context) error {
	empty := c.report.LastSlot + 1
	depth := journal.Slot(c.store.Info().Depth)
	held := journal.Slot(0)
	for ahead := journal.Slot(1); held == 0 && ahead <= 1<<20; {
		rec, err := c.store.Peek(ctx, empty+ahead)
		corrupt := errors.Is(err, journal.ErrCorrupt)
		switch {
		case err != nil && !corrupt:
			return err
		case ahead >= depth && (corrupt || rec != nil), record.SawHeld(c.id, rec, empty):
			held = empty + ahead
		}
		if ahead <= 2*depth {
			ahead++
		} else {
			ahead *= 2 // the gap may be long
		}
	}
	if held == 0 {
		return nil
	}
	if rec, err := c.store.Peek(ctx, empty); err != nil || rec != nil {
		return err // it has been filled meanwhile
	}
	c.report.add(Finding{Severity: Error, Code: LostSlots, Slot: empty,
		Message: fmt.Sprintf("is empty, and had been held: slot %d was written after it was read", held)})
	return nil
}
