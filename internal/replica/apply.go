package replica

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
)

// settled is a batch with its outcome, to be told once the state is published.
type settled struct {
	batch   *batch
	results []mvcc.Result
}

// advance applies every record that comes next, publishes the state, wakes
// watchers, and only then tells proposers: who is told can read his write.
func (l *loop) advance() error {
	before := l.state.Revision()
	var told []settled
	moved := false
	for {
		slot := l.state.Slot() + 1
		h, ok := l.known[slot]
		if !ok {
			break
		}
		delete(l.known, slot)
		delete(l.lost, slot)
		s, err := l.applySlot(slot, h)
		if err != nil {
			for _, s := range told { // nobody can read them here any more
				s.batch.settle(nil, ErrUnknown)
			}
			return err
		}
		if s.batch != nil {
			told = append(told, s)
		}
		moved = true
	}
	if !moved {
		return nil
	}
	l.publish(before)
	for _, s := range told {
		s.batch.settle(s.results, nil)
	}
	if !l.snaps.working {
		l.state.Prune(pruneAtOnce)
	}
	return nil
}

func (l *loop) publish(before mvcc.Revision) {
	l.hub.publish(l.state.View(), l.state.ChangesSince(before))
}

// applySlot takes in the record of the next slot. Whatever is wrong with it
// is wrong on every replica, and makes it void.
func (l *loop) applySlot(slot journal.Slot, h held) (settled, error) {
	mine := h.ours != nil
	defer func() { l.snaps.passed(l, len(h.rec), mine) }()
	var head record.Header
	var body []byte
	var err error
	if h.ours != nil {
		head = h.ours.head
		err = l.chains.Check(l.info.ID, &head)
		l.chains.Extend(h.ours.digest)
	} else {
		head, body, err = l.chains.Take(l.info.ID, h.rec)
	}
	if errors.Is(err, record.ErrFormat) {
		return settled{}, fmt.Errorf("slot %d: %w; use the xb that wrote it, or a newer one", slot, err)
	}
	if errors.Is(err, record.ErrForked) {
		return settled{}, forked(slot, err)
	}
	if err != nil {
		l.state.Skip(slot)
		l.turns.applied(slot, 0, true, 0, time.Now())
		l.onVoid(slot, h, err)
		return settled{}, nil
	}
	empty := head.Kind == record.Batch && len(h.body(body)) == 1 // a count of 0
	l.turns.applied(slot, head.Writer, empty, time.Duration(head.Turns)*time.Millisecond, time.Now())
	if head.Agrees {
		l.snaps.heard(l, head.Writer, head.Anchor)
	}
	mine = head.Writer == l.writer
	if mine && h.ours == nil {
		// Ours, but a Read saw it before its Append returned, or after its
		// Append took it for another's; unless somebody forged our name.
		if b := l.open[head.Number]; b != nil && b.kind == head.Kind && bytes.Equal(b.body, body) {
			h.ours = b
		}
	}
	var s settled
	switch head.Kind {
	case record.Batch:
		s, err = l.applyBatch(slot, &head, body, h.ours)
		if err != nil {
			l.onVoid(slot, h, err)
		}
	case record.Snapshot:
		l.state.Skip(slot)
		l.finish(h.ours)
		if m, err := record.ParseSnapshotMark(h.body(body)); err != nil {
			l.onVoid(slot, h, err)
		} else if err := l.snaps.marked(l, mark{SnapshotMark: m, writer: head.Writer, at: slot}); err != nil {
			return s, err
		}
	case record.Floor:
		l.state.Skip(slot)
		ours := l.finish(h.ours)
		if mark, err := record.ParseFloorMark(h.body(body)); err != nil {
			l.onVoid(slot, h, err)
		} else if ours {
			l.trim.onFloor(l, mark)
		}
	}
	return s, nil
}

// forked is the end of a replica that met a record of another history of its
// journal. Whoever wrote it acknowledged writes on records that this replica
// does not have: to go on would make two histories of one, for good.
func forked(slot journal.Slot, cause error) error {
	return fmt.Errorf("slot %d: %w: %w; stop all servers of this journal, keep a copy of it, and see what xb fsck says", slot, ErrForked, cause)
}

// body is the record's body: parsed, unless it is one of ours.
func (h held) body(parsed []byte) []byte {
	if h.ours != nil {
		return h.ours.body
	}
	return parsed
}

func (l *loop) applyBatch(slot journal.Slot, head *record.Header, body []byte, ours *batch) (settled, error) {
	in := mvcc.Batch{From: l.info.ID, Writer: head.Writer, Number: head.Number}
	if ours != nil {
		in.Requests = ours.requests()
		l.leases.proposed(slot, in.Requests)
	} else {
		var err error
		if in.Requests, err = mvcc.ParseRequests(body); err != nil {
			l.state.Skip(slot)
			return settled{}, err
		}
	}
	results := l.state.Apply(slot, &in, ours != nil)
	if ours == nil || !l.finish(ours) {
		return settled{}, nil
	}
	return settled{batch: ours, results: results}, nil
}

// finish marks a batch as having its outcome, and says whether it had none yet.
func (l *loop) finish(b *batch) bool {
	if b == nil || l.open[b.number] != b {
		return false
	}
	delete(l.open, b.number)
	l.settled = time.Now()
	return true
}

// onVoid looks after a record that changed nothing. One of ours is placed
// again: it was anchored too far back.
func (l *loop) onVoid(slot journal.Slot, h held, cause error) {
	switch {
	case h.ours != nil && h.ours.idle():
		return // it filled its slot all the same
	case h.ours != nil && l.open[h.ours.number] == h.ours:
		l.again = append(l.again, h.ours)
		return
	}
	l.log.Warn("void record", "slot", uint64(slot), "error", cause)
}
