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
	// Progress hears how far the check has come, after every Read. Nil: nobody does.
	Progress func(Progress)
	// Policy is the snapshot policy of the servers that wrote the journal. It
	// is a hint: if it is wrong, some slots are read twice.
	Policy snapshot.Policy
}

// Progress is how far a check has come.
type Progress struct {
	Phase Phase
	Slot  journal.Slot // the last one looked at
	Bytes int64        // of the records read in this phase
}

// Phase is a part of a check.
type Phase string

// The phases of a check, in the order in which they come.
const (
	PhaseSnapshots Phase = "snapshots" // loading every snapshot
	PhaseSlots     Phase = "slots"     // applying every slot
	PhaseMarks     Phase = "marks"     // applying slots again, for marks that came long after their slot
)

// Check reads and judges the whole journal, up to the tail that it finds, and its
// snapshots. It holds one state in memory, and one snapshot beside it for a while. The
// report is never nil. An error means that the store did not answer or ctx ended: the
// report then tells of what came before, and says in Incomplete that it is not all.
func Check(ctx context.Context, store journal.Store, opts Options) (*Report, error) {
	c := &checker{
		src:     newSource(store, opts.Progress),
		policy:  opts.Policy,
		report:  newReport(),
		writers: newWriterTable(),
		history: newHistory(),
	}
	c.report.Journal = c.src.id.String()
	err := c.run(ctx)
	c.report.Writers, c.report.OtherWriters = c.writers.list()
	c.report.Applied = c.history.runs()
	if err != nil {
		c.report.Incomplete = printable(err.Error())
	}
	return c.report, err
}

// checker is one run of Check.
type checker struct {
	src      source
	policy   snapshot.Policy
	report   *Report
	writers  writerTable
	history  history
	schedule snapshot.Schedule // of the servers: marks may name the slots at which it is due
	floor    journal.Slot      // the highest that a floor record names
	ended    bool              // the tail was reached
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
		if err := c.checkTail(ctx); err != nil {
			return err
		}
	}
	c.compareSnapshots()
	return nil
}

// checkSlots applies every slot there is. If slots are gone or corrupt, it goes on from
// a snapshot behind them, as a server would.
func (c *checker) checkSlots(ctx context.Context) error {
	c.src.begin()
	cur := newCursor(c.src.id)
	for {
		c.history.begin(cur.slot())
		c.schedule = snapshot.NewSchedule(c.policy)
		err := c.walk(ctx, cur)
		gone := cur.slot() + 1
		switch {
		case errors.Is(err, journal.ErrCorrupt):
			c.report.add(Finding{Severity: Error, Code: CorruptSlot, Slot: gone, Message: err.Error()})
		case !errors.Is(err, journal.ErrTrimmed):
			c.ended = err == nil
			return errors.Join(err, c.report.State.set(ctx, cur))
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
			return c.report.State.set(ctx, cur)
		}
		c.report.add(Finding{Severity: Info, Code: ResumedAt, Slot: next.slot(),
			Message: fmt.Sprintf("slots %d to %d were not applied; the check goes on from the snapshot at slot %d", gone, next.slot(), next.slot())})
		cur = next
	}
}

// walk applies slots from where cur stands to the tail.
func (c *checker) walk(ctx context.Context, cur *cursor) error {
	for {
		recs, err := c.src.read(ctx, cur.slot()+1)
		if err != nil || len(recs) == 0 {
			return err
		}
		for _, rec := range recs {
			s := cur.apply(rec)
			c.history.applied(s.slot)
			c.note(&s)
			if !c.named(cur, &s) {
				continue
			}
			h, err := cur.hash(ctx)
			if err != nil {
				return err
			}
			c.history.hashes[s.slot] = h
		}
		c.src.progress(PhaseSlots, cur.slot())
	}
}

// note counts a step, and reports what is wrong with it.
func (c *checker) note(s *step) {
	c.report.Counts.count(s)
	c.writers.add(s)
	switch {
	case s.void != nil:
		c.report.add(voidFinding(s))
	case s.head.Kind == record.Floor:
		c.floor = max(c.floor, s.floor)
	case s.head.Kind == record.Snapshot:
		finding, checked := c.history.judge(mark{s.slot, s.mark})
		if !checked {
			c.report.UncheckedMarks++
		}
		if finding != nil {
			c.report.add(*finding)
		}
	}
}

// named says whether something names the state after a step, or may later: then it is
// hashed.
func (c *checker) named(cur *cursor, s *step) bool {
	if s.void == nil && s.head.Kind == record.Snapshot {
		c.schedule.Marked(s.mark.Slot)
	}
	c.schedule.Applied(s.size)
	if c.schedule.Due(cur.state.Bytes()) {
		c.schedule.Taken()
		return true
	}
	return slices.ContainsFunc(c.report.Snapshots, func(sn Snapshot) bool { return sn.Slot == s.slot })
}

// resume returns a cursor on the oldest usable snapshot that lies behind a slot, and
// after which slots can be read; nil if there is none.
func (c *checker) resume(ctx context.Context, after journal.Slot) (*cursor, error) {
	cur, dropped, err := c.tryResume(ctx, after)
	if cur == nil && dropped {
		if err = c.checkSnapshots(ctx); err == nil {
			cur, _, err = c.tryResume(ctx, after)
		}
	}
	return cur, err
}

// tryResume is resume with the snapshots that are known. dropped says that one of them
// is gone meanwhile.
func (c *checker) tryResume(ctx context.Context, after journal.Slot) (cur *cursor, dropped bool, err error) {
	for _, sn := range c.report.Snapshots { // oldest first
		if sn.Slot <= after || sn.Status == Unusable || sn.Status == Disputed {
			continue
		}
		_, err := c.src.store.Read(ctx, sn.Slot+1, 1)
		if errors.Is(err, journal.ErrTrimmed) || errors.Is(err, journal.ErrCorrupt) {
			continue
		}
		if err != nil {
			return nil, dropped, err
		}
		cur, hash, err := c.src.load(ctx, sn.Slot)
		if badSnapshot(err) {
			dropped = true
			continue
		}
		if err != nil {
			return nil, dropped, err
		}
		c.history.hashes[sn.Slot] = hash // as the snapshot claims: marks may confirm it
		return cur, dropped, nil
	}
	return nil, dropped, nil
}

// checkTrimmed finds where the journal starts, and looks for floor records in the slots
// from there on that next skips.
func (c *checker) checkTrimmed(ctx context.Context, next *cursor) error {
	first, err := First(ctx, c.src.store)
	if err != nil {
		return err
	}
	c.report.TrimmedBelow = first
	if next == nil {
		return nil
	}
	floor, err := c.src.highestFloor(ctx, first, next.slot())
	c.floor = max(c.floor, floor)
	return err
}

// checkLateMarks applies slots once more, up to those that marks name and that were not
// hashed the first time.
func (c *checker) checkLateMarks(ctx context.Context) error {
	c.src.begin()
	for _, sp := range c.history.spans {
		last := c.history.lastLate(sp)
		if last == 0 {
			continue
		}
		cur := newCursor(c.src.id)
		if sp.start > 0 {
			var err error
			cur, _, err = c.src.load(ctx, sp.start)
			if badSnapshot(err) { // it was deleted meanwhile
				c.report.UncheckedMarks += len(c.history.late)
				continue
			}
			if err != nil {
				return err
			}
		}
		if err := c.markAgain(ctx, cur, last); err != nil {
			return err
		}
	}
	return nil
}

// markAgain applies slots from where cur stands up to last, for the marks that name them.
func (c *checker) markAgain(ctx context.Context, cur *cursor, last journal.Slot) error {
	for cur.slot() < last {
		recs, err := c.src.read(ctx, cur.slot()+1)
		if err != nil {
			return err
		}
		if len(recs) == 0 {
			return fmt.Errorf("slot %d was there and is not any more", cur.slot()+1)
		}
		for _, rec := range recs {
			cur.apply(rec)
			marks := c.history.takeLate(cur.slot())
			if marks == nil {
				continue
			}
			h, err := cur.hash(ctx)
			if err != nil {
				return err
			}
			for _, m := range marks {
				if f := m.compare(h); f != nil {
					c.report.add(*f)
				}
			}
		}
		c.src.progress(PhaseMarks, cur.slot())
	}
	return nil
}

// checkTail reports if records behind the empty slot after the tail prove that the slot
// was held.
func (c *checker) checkTail(ctx context.Context) error {
	empty := c.report.LastSlot + 1
	proof, err := c.src.proofOf(ctx, empty)
	if err != nil || proof == 0 {
		return err
	}
	if rec, err := c.src.store.Peek(ctx, empty); err != nil || rec != nil {
		return err // the slot has been filled meanwhile
	}
	c.report.add(Finding{Severity: Error, Code: LostSlots, Slot: empty,
		Message: fmt.Sprintf("is empty, and had been held: slot %d was written after it was read", proof)})
	return nil
}
