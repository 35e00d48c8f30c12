// Package fsck reads a journal for people: Check applies every record as a
// replica does and holds the outcome against every hash that a snapshot or a
// record names, and Dump prints records. It never changes anything, and never
// shows a value unless it is told to.
package fsck

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/record"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// Options are what a check may be told. The zero value is ready for use.
type Options struct {
	// Progress hears how far the check has come, after every Read. Nil: no one.
	Progress func(Progress)
	// Policy is the snapshot policy of the servers that wrote the journal. It
	// is a hint: where it is wrong, some slots are read twice.
	Policy snapshot.Policy
}

// Progress is how far a check has come.
type Progress struct {
	Phase Phase
	Slot  journal.Slot // the last one looked at
	Bytes int64        // of the records read in this phase
}

// Phase is a part of a check, in the order in which they come.
type Phase string

// The phases of a check.
const (
	PhaseSnapshots Phase = "snapshots" // loading every snapshot
	PhaseSlots     Phase = "slots"     // applying every slot
	PhaseMarks     Phase = "marks"     // applying slots again, for marks that came long after their slot
)

// Check reads and judges the whole journal, up to the tail that it finds, and
// its snapshots. It holds one state in memory, and one snapshot beside it for
// a while. The report is never nil. An error means that the store did not
// answer or ctx ended: the report then tells of what came before, and says in
// Incomplete that it is not all.
func Check(ctx context.Context, store journal.Store, opts Options) (*Report, error) {
	c := &checker{
		store: store, reader: reader{store: store}, id: store.Info().ID, opts: opts,
		report:  newReport(),
		writers: newWriterTable(),
		hashes:  map[journal.Slot]Hash{},
		late:    map[journal.Slot][]mark{},
		due:     snapshot.NewSchedule(opts.Policy),
	}
	c.report.Journal = c.id.String()
	err := c.run(ctx)
	c.report.Writers, c.report.OtherWriters = c.writers.list()
	c.report.Applied = runs(c.spans)
	if err != nil {
		c.report.Incomplete = printable(err.Error())
	}
	return c.report, err
}

// checker is one run of Check.
type checker struct {
	store   journal.Store
	reader  reader
	id      journal.ID
	opts    Options
	report  *Report
	writers writerTable

	hashes map[journal.Slot]Hash   // of the state, computed by applying slots
	late   map[journal.Slot][]mark // by the slot they name; it was passed without hashing
	spans  []span
	due    snapshot.Schedule // of the slots that are hashed because a mark may name them later
	bytes  int64             // of the records read in this phase
	floor  journal.Slot      // the highest that a floor record names
	ended  bool              // the tail was reached
}

// span is a run of slots that were applied one after the other.
type span struct {
	start journal.Slot // the state it starts from: 0, or a snapshot's slot
	end   journal.Slot // the last slot applied
}

// runs are the spans in which slots were applied, as the report names them.
func runs(spans []span) []Run {
	out := []Run{}
	for _, sp := range spans {
		if sp.end > sp.start {
			out = append(out, Run{First: sp.start + 1, Last: sp.end, FromSnapshot: sp.start})
		}
	}
	return out
}

// mark is a Snapshot record, with the slot that holds it.
type mark struct {
	at journal.Slot
	record.SnapshotMark
}

func (c *checker) run(ctx context.Context) error {
	if err := c.checkSnapshots(ctx); err != nil {
		return err
	}
	if err := c.checkSlots(ctx); err != nil {
		return err
	}
	if err := c.checkLateMarks(ctx); err != nil {
		return err
	}
	if c.report.TrimmedBelow > max(c.floor, 1) {
		c.report.add(Finding{Severity: Error, Code: TrimmedUnasked, Slot: c.report.TrimmedBelow,
			Message: "slots below this one are gone, and no floor record gives them up"})
	}
	if c.ended {
		if err := c.lookBeyond(ctx); err != nil {
			return err
		}
	}
	c.compareSnapshots()
	return nil
}

// checkSlots applies every slot there is. Where slots are gone or corrupt it
// goes on, as a server would, from a snapshot behind them.
func (c *checker) checkSlots(ctx context.Context) error {
	c.bytes = 0
	cur := newCursor(c.id)
	for {
		c.spans = append(c.spans, span{cur.slot(), cur.slot()})
		err := c.walk(ctx, cur)
		gone := cur.slot() + 1
		switch {
		case errors.Is(err, journal.ErrCorrupt):
			c.report.add(Finding{Severity: Error, Code: CorruptSlot, Slot: gone, Message: err.Error()})
		case !errors.Is(err, journal.ErrTrimmed):
			c.ended = err == nil
			return errors.Join(err, c.report.stateAt(ctx, cur))
		}
		trimmed := errors.Is(err, journal.ErrTrimmed)
		next, err := c.resume(ctx, cur.slot())
		if err == nil && trimmed {
			err = c.checkTrimmed(ctx, next)
		}
		if err != nil {
			return err
		}
		if next == nil {
			c.report.add(Finding{Severity: Error, Code: NoWayOn, Slot: gone,
				Message: "no usable snapshot lies behind this slot: neither it nor what follows can be applied"})
			return c.report.stateAt(ctx, cur)
		}
		c.report.add(Finding{Severity: Info, Code: ResumedAt, Slot: next.slot(),
			Message: fmt.Sprintf("slots %d to %d were not applied; the check goes on from the snapshot at slot %d", gone, next.slot(), next.slot())})
		cur = next
	}
}

// walk applies slots from where cur stands to the tail.
func (c *checker) walk(ctx context.Context, cur *cursor) error {
	for {
		recs, err := c.read(ctx, cur.slot()+1)
		if err != nil || len(recs) == 0 {
			return err
		}
		for _, rec := range recs {
			s := cur.apply(rec)
			c.spans[len(c.spans)-1].end = s.slot
			c.note(&s)
			if err := c.hash(ctx, cur, &s); err != nil {
				return err
			}
		}
		c.progress(PhaseSlots, cur.slot())
	}
}

// read reads some slots, and counts them.
func (c *checker) read(ctx context.Context, from journal.Slot) ([][]byte, error) {
	recs, err := c.reader.read(ctx, from, 0)
	for _, rec := range recs {
		c.bytes += int64(len(rec))
	}
	return recs, err
}

func (c *checker) progress(p Phase, slot journal.Slot) {
	if c.opts.Progress != nil {
		c.opts.Progress(Progress{Phase: p, Slot: slot, Bytes: c.bytes})
	}
}

// note counts a step, and reports what is wrong with it.
func (c *checker) note(s *step) {
	r := c.report
	r.Records++
	r.Bytes += int64(s.size)
	if s.void != nil {
		c.noteVoid(s)
		return
	}
	switch s.head.Kind {
	case record.Batch:
		r.Batches++
		c.writers.batch(s.head.Writer, s.slot, len(s.requests))
		for i := range s.requests {
			kind := s.requests[i].Kind
			r.Requests[kindName(kind)]++
			if s.results[i].Err != nil {
				r.FailedRequests++
			}
		}
	case record.Snapshot:
		r.Marks++
		c.writers.control(s.head.Writer, s.slot)
		c.noteMark(mark{s.slot, s.mark})
	case record.Floor:
		r.Floors++
		c.writers.control(s.head.Writer, s.slot)
		c.floor = max(c.floor, s.floor)
	}
}

func (c *checker) noteVoid(s *step) {
	c.report.VoidRecords++
	f := Finding{Severity: Warning, Code: VoidRecord, Slot: s.slot, Message: s.void.Error()}
	reason := "undecodable"
	switch {
	case errors.Is(s.void, errSeen):
		reason = "seen-before"
		f.Severity, f.Code = Info, SeenBefore
		c.writers.control(s.head.Writer, s.slot)
	case errors.Is(s.void, record.ErrForeign):
		reason = "foreign"
	case errors.Is(s.void, record.ErrForked):
		reason = "foreign"
		f.Severity, f.Code = Error, OtherHistory
	case errors.Is(s.void, record.ErrMalformed):
		reason = "malformed"
	case errors.Is(s.void, record.ErrFormat):
		reason = "other-format"
		f.Severity, f.Code = Error, OtherFormat
	}
	c.report.Void[reason]++
	c.report.add(f)
}

// hash computes the hash of the state where something names it, or may later.
func (c *checker) hash(ctx context.Context, cur *cursor, s *step) error {
	slot := s.slot
	if s.void == nil && s.head.Kind == record.Snapshot {
		c.due.Marked(s.mark.Slot)
	}
	c.due.Applied(s.size)
	due := c.due.Due(cur.state.Bytes())
	if due {
		c.due.Taken()
	}
	if !due && !slices.ContainsFunc(c.report.Snapshots, func(sn Snapshot) bool { return sn.Slot == slot }) {
		return nil
	}
	h, err := cur.hash(ctx)
	c.hashes[slot] = h
	return err
}

// noteMark compares a mark with the state at the slot that it names, now or
// once that slot has been applied again.
func (c *checker) noteMark(m mark) {
	h, hashed := c.hashes[m.Slot]
	switch {
	case m.Slot >= m.at || m.Slot == 0:
		c.report.UncheckedMarks++
		c.report.add(Finding{Severity: Warning, Code: OddMark, Slot: m.at,
			Message: fmt.Sprintf("names the state at slot %d, which does not lie before it", m.Slot)})
	case hashed:
		c.compareMark(m, h)
	case c.spanOf(m.Slot) == nil:
		c.report.UncheckedMarks++
	default:
		c.late[m.Slot] = append(c.late[m.Slot], m)
	}
}

// spanOf returns the span in which slot was applied; nil if it was not.
func (c *checker) spanOf(slot journal.Slot) *span {
	for i := range c.spans {
		if c.spans[i].start < slot && slot <= c.spans[i].end {
			return &c.spans[i]
		}
	}
	return nil
}

func (c *checker) compareMark(m mark, computed Hash) {
	if Hash(m.Hash) == computed {
		return
	}
	c.report.add(Finding{Severity: Error, Code: MarkDiffers, Slot: m.at,
		Message: fmt.Sprintf("says that the state at slot %d has the hash %s; here it comes out as %s", m.Slot, Hash(m.Hash).short(), computed.short())})
}
