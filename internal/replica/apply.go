package replica

import (
	"errors"
	"fmt"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
	"github.com/xbernetes/xbernetes/internal/replica/agreement"
)

// outcome is the result of applying a batch of this writer. Proposers are told the outcome
// once the state is published.
type outcome struct {
	batch   *batch // nil: not a batch of this writer, or a batch that had its outcome before
	results []mvcc.Result
}

// advance applies every record that comes next, publishes the state, wakes watchers,
// and only then tells proposers: whoever is told of a write can read it.
func (l *loop) advance() error {
	before := l.state.Revision()
	var outcomes []outcome
	moved := false
	for {
		slot, e, ok := l.window.apply()
		if !ok {
			break
		}
		o, err := l.applySlot(slot, e)
		if err != nil {
			for _, o := range outcomes { // the state with these batches will not be published
				o.batch.resolve(nil, ErrUnknown)
			}
			return err
		}
		if o.batch != nil {
			outcomes = append(outcomes, o)
		}
		moved = true
	}
	if !moved {
		return nil
	}
	l.hub.publish(l.state.View(), l.state.ChangesSince(before))
	for _, o := range outcomes {
		o.batch.resolve(o.results, nil)
	}
	if !l.snapshots.working {
		l.state.Prune(pruneAtOnce)
	}
	return nil
}

// applySlot applies the record of the next slot. A record with a fault is void: every
// replica finds the same fault.
func (l *loop) applySlot(slot journal.Slot, e entry) (outcome, error) {
	head, body, err := l.extend(e)
	switch {
	case errors.Is(err, record.ErrFormat):
		return outcome{}, fmt.Errorf("slot %d: %w; use the xb that wrote it, or a newer one", slot, err)
	case errors.Is(err, record.ErrForked):
		// The writer acknowledged writes on records that this replica does not have.
		// To go on would make two histories of one, for good.
		return outcome{}, fmt.Errorf("slot %d: %w: %w; stop all servers of this journal, keep a copy of it, and see what xb fsck says", slot, ErrForked, err)
	case err != nil:
		l.state.Skip(slot)
		l.turns.Applied(slot, 0, true, 0, time.Now())
		l.onVoid(slot, e, err)
		l.recordApplied(len(e.rec), e.ours != nil)
		return outcome{}, nil
	}
	empty := head.Kind == record.Batch && len(body) == 1 // a count of 0
	l.turns.Applied(slot, head.Writer, empty, time.Duration(head.Turns)*time.Millisecond, time.Now())
	if head.Agrees && l.agreement.Heard(head.Writer, head.Anchor) {
		l.releaseRecords()
	}
	if e.ours == nil && head.Writer == l.writer {
		// A Read saw the record before its Append returned, or the Append took it
		// for another writer's.
		e.ours = l.window.find(&head, body)
	}
	var o outcome
	if head.Kind == record.Batch {
		o = l.applyBatch(slot, e, &head, body)
	} else {
		l.applyControl(slot, e, &head, body)
	}
	l.recordApplied(len(e.rec), head.Writer == l.writer)
	return o, nil
}

// extend extends the chain by a record, and returns its header and body. The record of a
// batch of this writer need not be decoded.
func (l *loop) extend(e entry) (head record.Header, body []byte, err error) {
	if e.ours == nil {
		return l.chains.Take(l.info.ID, e.rec)
	}
	head = e.ours.head
	err = l.chains.Check(l.info.ID, &head)
	l.chains.Extend(e.ours.digest)
	return head, e.ours.body, err
}

// applyBatch applies a batch, and returns its outcome if the batch is this writer's.
func (l *loop) applyBatch(slot journal.Slot, e entry, head *record.Header, body []byte) outcome {
	in := mvcc.Batch{From: l.info.ID, Writer: head.Writer, Number: head.Number}
	if e.ours != nil {
		in.Requests = e.ours.requests()
		l.leases.Proposed(slot, in.Requests)
	} else {
		var err error
		if in.Requests, err = mvcc.ParseRequests(body); err != nil {
			l.state.Skip(slot)
			l.onVoid(slot, e, err)
			return outcome{}
		}
	}
	results := l.state.Apply(slot, &in, e.ours != nil)
	if !l.resolve(e.ours) {
		return outcome{}
	}
	return outcome{batch: e.ours, results: results}
}

// applyControl acts on a control record, which does not change the state.
func (l *loop) applyControl(slot journal.Slot, e entry, head *record.Header, body []byte) {
	l.state.Skip(slot)
	first := l.resolve(e.ours) // the first copy of this replica's own record
	switch head.Kind {
	case record.Snapshot:
		m, err := record.ParseSnapshotMark(body)
		if err != nil {
			l.onVoid(slot, e, err)
			return
		}
		l.snapshots.schedule.Marked(m.Slot)
		l.agreement.Marked(agreement.Mark{SnapshotMark: m, Writer: head.Writer, Number: head.Number, At: slot})
		l.judge(m.Slot)
	case record.Floor:
		m, err := record.ParseFloorMark(body)
		if err != nil {
			l.onVoid(slot, e, err)
			return
		}
		l.counts.Floor.Store(max(l.counts.Floor.Load(), uint64(m.Slot)))
		if first {
			l.onFloor(m.Slot)
		}
	case record.Batch: // applyBatch has it
	}
}

// resolve notes that a batch has its outcome, and says whether it had none before.
func (l *loop) resolve(b *batch) bool {
	if !l.window.resolve(b) {
		return false
	}
	l.pace.Resolved(time.Now())
	return true
}

// onVoid handles a void record. A batch of this writer is launched again, because its
// record was anchored too far back. Other void records are counted and logged.
func (l *loop) onVoid(slot journal.Slot, e entry, cause error) {
	if e.ours != nil && (e.ours.filler() || l.window.void(e.ours)) {
		return // a void filler has filled its slot all the same
	}
	switch {
	case errors.Is(cause, record.ErrForeign):
		l.counts.Void.Foreign.Add(1)
	case errors.Is(cause, record.ErrMalformed):
		l.counts.Void.Malformed.Add(1)
	default:
		l.counts.Void.Undecodable.Add(1)
	}
	l.log.Warn("void record", "slot", uint64(slot), "error", cause)
}
