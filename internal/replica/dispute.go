package replica

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// A snapshot is one replica's word, and a replica may be wrong: a bit of its
// memory may have changed. So one whose hash differs from another's does not
// believe either. It makes the state anew, from records and an older snapshot,
// and whoever finds itself to be wrong stops. The other says so beside the
// snapshot, so that nobody starts from it, and in the journal, so that who wrote
// it looks at itself.

// mark is what the journal says of a snapshot.
type mark struct {
	record.SnapshotMark
	writer mvcc.WriterID
	at     journal.Slot // that holds the record
	// seconded says that another replica than the writer came to the same hash.
	seconded bool
}

// keptMarks is how many of the last marks are remembered.
const keptMarks = 16

// marked takes in a mark of the journal.
func (s *snapshots) marked(l *loop, m mark) error {
	if len(s.marks) == keptMarks {
		s.marks = slices.Delete(s.marks, 0, 1)
	}
	s.marks = append(s.marks, m)
	s.schedule.Marked(m.Slot)
	return s.judge(l, m.Slot)
}

// judge holds what the journal says of the state at a slot against what this
// replica has computed, if it has.
func (s *snapshots) judge(l *loop, slot journal.Slot) error {
	own, ok := s.own[slot]
	if !ok {
		return nil
	}
	against := map[mvcc.WriterID]int{} // how often each writer says otherwise
	alike, backed, sure := false, false, false
	for _, m := range s.marks {
		switch {
		case m.Slot != slot:
		case m.Hash == own.sum:
			alike, backed = true, backed || m.writer != l.writer
		default:
			against[m.writer]++
			sure = sure || against[m.writer] > 1
		}
	}
	if alike && !own.loaded {
		l.trim.agreed(l, slot, own.sum)
	}
	switch {
	case len(against) == 0:
	case !own.confirmed && !own.checking && !s.checking:
		own.checking, s.checking = true, true
		s.own[slot] = own
		l.group.Go(func() error { return l.check(slot, own.sum) })
	case own.confirmed && sure && !backed:
		return fmt.Errorf("at slot %d another replica makes another state of the same records, as this one did twice: they run different versions of xb, or one has a defect; stop them, run one version, and report it if it was: %w", slot, ErrDiverged)
	}
	return nil
}

// check makes the state at slot anew. It fails, and the replica stops, unless the
// outcome is what this replica had. Whoever is wrong has its snapshots from there
// on disputed, by both.
func (l *loop) check(slot journal.Slot, own [sha256.Size]byte) error {
	l.log.Warn("another replica has a different state; making this one's anew from the journal to see who is wrong", "slot", uint64(slot))
	made, err := l.recompute(slot)
	if l.ctx.Err() != nil {
		return l.ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("at slot %d another replica has a different state, and which one is right cannot be told (%w); check the journal with xb fsck: %w", slot, err, ErrDiverged)
	}
	var known map[journal.Slot]ownHash
	var stored []journal.Slot
	if err := l.call(l.ctx, func(l *loop) { known, stored = maps.Clone(l.snaps.own), slices.Clone(l.snaps.stored) }); err != nil {
		return err
	}
	if made != own {
		for _, s := range stored {
			if s >= slot {
				l.dispute(s)
			}
		}
		return fmt.Errorf("at slot %d this server's state was not what the journal makes of it: its memory, or the snapshot that it started from, was wrong; start it again, on another machine if that comes back: %w", slot, ErrDiverged)
	}
	l.log.Error("another server's state is not what the journal makes of it; its snapshots will not be used, and it should stop by itself", "slot", uint64(slot))
	l.dispute(slot)
	names, err := l.listSnapshots()
	if err != nil {
		return err
	}
	for _, newer := range snapshot.Undisputed(names) {
		m, err := snapshot.ReadManifest(l.ctx, l.cfg.Store, newer)
		if newer > slot && (err != nil || m.Hash != fmt.Sprintf("%x", known[newer].sum)) {
			l.dispute(newer)
		}
	}
	return l.call(l.ctx, func(l *loop) {
		l.snaps.own[slot], l.snaps.checking = ownHash{sum: own, confirmed: true}, false
		l.control(record.Snapshot, record.SnapshotMark{Slot: slot, Hash: own}.Append(nil))
	})
}

// dispute says beside a snapshot that nobody should start from it.
func (l *loop) dispute(slot journal.Slot) {
	name := snapshot.DisputeOf(slot)
	if err := l.cfg.Store.PutBlob(l.ctx, name, fmt.Appendf(nil, "writer %016x\n", uint64(l.writer))); err != nil && l.ctx.Err() == nil {
		l.log.Warn("a wrong snapshot could not be marked; delete it by hand", "slot", uint64(slot), "blob", name, "error", err)
	}
}

// recompute makes the hash of the state at slot from the newest snapshot below
// it that nobody disputes, or from nothing.
func (l *loop) recompute(slot journal.Slot) (hash [sha256.Size]byte, err error) {
	names, err := l.listSnapshots()
	if err != nil {
		return hash, err
	}
	state, chains := mvcc.New(), record.NewChains(l.info.ID)
	for _, below := range snapshot.Undisputed(names) {
		if below >= slot {
			continue
		}
		if loaded, err := l.loadSnapshot(below); err == nil {
			state, chains = loaded.State, loaded.Chains
			break
		}
	}
	wait := newPatience(l.Replica, "read")
	defer wait.over()
	for state.Slot() < slot {
		recs, err := l.readOnce(wait, state.Slot()+1, int(min(slot-state.Slot(), fetchLimit)))
		switch {
		case errors.Is(err, journal.ErrTrimmed), errors.Is(err, journal.ErrCorrupt), errors.Is(err, journal.ErrClosed):
			return hash, err
		case err != nil || len(recs) == 0:
			if err := wait.pause(l.ctx, err); err != nil {
				return hash, err
			}
		}
		for _, rec := range recs {
			replay(state, chains, l.info.ID, rec)
		}
	}
	return snapshot.Hash(l.ctx, state.Freeze(), chains.Last())
}

// replay applies the record of the next slot, for its state alone.
func replay(state *mvcc.State, chains *record.Chains, id journal.ID, rec []byte) {
	slot := state.Slot() + 1
	head, body, err := chains.Take(id, rec)
	if err == nil && head.Kind == record.Batch {
		in := mvcc.Batch{From: id, Writer: head.Writer, Number: head.Number}
		if in.Requests, err = mvcc.ParseRequests(body); err == nil {
			state.Apply(slot, &in, false)
			state.Prune(pruneAtOnce)
			return
		}
	}
	state.Skip(slot)
}

// agrees says whether this replica has computed what the newest mark says: every
// record of it tells the others.
func (s *snapshots) agrees() bool {
	if len(s.marks) == 0 {
		return false
	}
	m := s.marks[len(s.marks)-1]
	own, ok := s.own[m.Slot]
	return ok && !own.loaded && own.sum == m.Hash
}

// heard notes that a writer, in a record anchored there, agrees with the newest
// mark up to the anchor.
func (s *snapshots) heard(l *loop, from mvcc.WriterID, anchor journal.Slot) {
	for i := len(s.marks) - 1; i >= 0; i-- {
		m := &s.marks[i]
		if m.at > anchor {
			continue
		}
		if m.writer != from && !m.seconded {
			m.seconded = true
			l.trim.giveUp(l)
		}
		return
	}
}

// trusted says whether the snapshot at slot may take the place of what made it:
// this replica came to its hash and so did another one, where there is one that
// writes.
func (s *snapshots) trusted(l *loop, slot journal.Slot) bool {
	own, ok := s.own[slot]
	if !ok || own.loaded {
		return false
	}
	trust := false
	for _, m := range s.marks {
		if m.Slot != slot {
			continue
		}
		if m.Hash != own.sum {
			return false
		}
		trust = trust || m.seconded || m.writer != l.writer || l.alone()
	}
	return trust
}

// alone says that no other replica has written for long, if any ever did.
func (l *loop) alone() bool {
	return l.info.Exclusive || l.turns.others == 0 || l.turns.others+record.AnchorSpan < l.state.Slot()
}

// sure is the newest snapshot that may take the place of older ones; 0: none.
func (s *snapshots) sure(l *loop) journal.Slot {
	for i := len(s.marks) - 1; i >= 0; i-- {
		if slot := s.marks[i].Slot; s.trusted(l, slot) {
			return slot
		}
	}
	return 0
}
