package replica

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// snapshots is the loop's part in taking and checking snapshots.
type snapshots struct {
	schedule snapshot.Schedule
	late     bool // a snapshot is due at the next record of ours
	looked   bool // whether the start had much to replay
	working  bool // a snapshot is being made or hashed
	done     chan taken
	own      map[journal.Slot]ownHash
	marks    []mark // the last that the journal holds, oldest first
	// stored are the last that this replica stored, or is about to.
	stored   []journal.Slot
	checking bool // whether this replica is wrong: it stores none meanwhile
}

// ownHash is the hash of this replica's state at a slot.
type ownHash struct {
	sum    [sha256.Size]byte
	loaded bool // it came with the snapshot, and was not computed from records
	// Another replica says otherwise: the state is being made anew, or was, with
	// the same outcome.
	checking, confirmed bool
}

// taken is what taking a snapshot came to.
type taken struct {
	slot     journal.Slot
	hash     [sha256.Size]byte
	hashed   bool // hash is that of the state
	stored   bool
	readable bool  // what was stored was read back
	err      error // of hashing or storing it
}

// passed notes that a slot was applied, with a record of so many bytes, and takes a
// snapshot if one is due. It is stored if the record was mine.
func (s *snapshots) passed(l *loop, size int, mine bool) {
	s.schedule.Applied(size)
	if l.ready {
		s.look(l)
	}
	if s.schedule.Due(l.state.Bytes()) || s.late && mine && !s.working {
		s.take(l, mine)
	}
}

// take takes a snapshot of the state as it stands.
func (s *snapshots) take(l *loop, store bool) {
	s.schedule.Taken()
	if s.late = s.working && (store || s.late); s.working {
		return // one that was to be stored is, once the one under way is done
	}
	s.working = true
	if store = store && !s.checking; store {
		s.stored = append(s.stored[max(0, len(s.stored)-keptMarks):], l.state.Slot())
	}
	frozen, chains, sure := l.state.Freeze(), l.chains.Clone(), s.sure(l)
	l.group.Go(func() error {
		out := l.takeSnapshot(l.ctx, frozen, chains, store)
		if out.readable {
			if err := snapshot.DeleteOld(l.ctx, l.cfg.Store, min(out.slot, sure)); err != nil {
				l.log.Debug("old snapshots stay", "error", err)
			}
		}
		select {
		case s.done <- out:
		case <-l.ctx.Done():
		}
		return nil
	})
}

// look is called now and then once the tail was reached. Where there was much to
// replay, the servers before this one have ended before they stored a snapshot: one
// is due at the next record of ours. A journal that nobody else writes need not wait
// for a record.
func (s *snapshots) look(l *loop) {
	if !s.looked {
		s.looked = true
		s.late = s.late || s.schedule.Missed(l.state.Bytes())
	}
	if s.late && !s.working && l.info.Exclusive {
		s.take(l, true)
	}
}

// onSnapshot takes in the hash that this replica computed.
func (l *loop) onSnapshot(out taken) error {
	s := &l.snaps
	s.working = false
	if out.err != nil {
		if l.ctx.Err() == nil {
			l.log.Warn("snapshot was not stored; it is tried again soon", "slot", uint64(out.slot), "error", out.err)
		}
	} else if out.stored {
		l.log.Info("snapshot stored", "slot", uint64(out.slot))
		l.control(record.Snapshot, record.SnapshotMark{Slot: out.slot, Hash: out.hash}.Append(nil))
	}
	if !out.hashed {
		return nil
	}
	for slot := range s.own {
		if slot+record.AnchorSpan*64 < out.slot {
			delete(s.own, slot)
		}
	}
	s.own[out.slot] = ownHash{sum: out.hash}
	return s.judge(l, out.slot)
}

// takeSnapshot hashes a state and, if store is set, stores it.
func (r *Replica) takeSnapshot(ctx context.Context, f *mvcc.Frozen, chains *record.Chains, store bool) taken {
	out := taken{slot: f.View.Slot()}
	if !store {
		out.hash, out.err = snapshot.Hash(ctx, f, chains.Last())
		out.hashed = out.err == nil
		return out
	}
	written, err := snapshot.Write(ctx, r.cfg.Store, r.info.ID, f, chains)
	out.hash, out.hashed, out.stored, out.err = written.Hash, written.Hashed, err == nil, err
	if err != nil {
		return out
	}
	if err := written.ReadBack(ctx, r.cfg.Store); err == nil {
		out.readable = true
	} else if ctx.Err() == nil {
		r.log.Warn("snapshot cannot be read back; older ones stay", "slot", uint64(out.slot), "error", err)
	}
	return out
}

// restore starts from the newest snapshot that is whole, or from nothing.
func (l *loop) restore() error {
	l.snaps.done = make(chan taken)
	l.snaps.schedule = snapshot.NewSchedule(l.cfg.Snapshots)
	l.snaps.own = map[journal.Slot]ownHash{}
	l.state, l.chains = mvcc.New(), record.NewChains(l.info.ID)
	// While they are looked at, newer ones may take their place.
	for tried := []journal.Slot(nil); l.state.Slot() == 0; {
		names, err := l.listSnapshots()
		if err != nil {
			return err
		}
		found := snapshot.Undisputed(names)
		if slices.Equal(found, tried) {
			break
		}
		tried = found
		if err := l.restoreNewest(found); err != nil {
			return err
		}
	}
	if l.info.Exclusive {
		if err := snapshot.DeleteOrphans(l.ctx, l.cfg.Store); err != nil { // the next start tries again
			l.log.Debug("blobs of no snapshot stay", "error", err)
		}
	}
	l.hub.publish(l.state.View(), nil)
	return nil
}

// restoreNewest restores the first snapshot that is whole, if any is.
func (l *loop) restoreNewest(slots []journal.Slot) error {
	for _, slot := range slots {
		loaded, err := l.loadSnapshot(slot)
		if l.ctx.Err() != nil {
			return l.ctx.Err()
		}
		if err != nil {
			l.log.Warn("snapshot is not usable; trying another one", "slot", uint64(slot), "error", err)
			continue
		}
		if err := l.reaches(slot); err != nil {
			return err
		}
		l.state, l.chains = loaded.State, loaded.Chains
		l.snaps.own[slot] = ownHash{sum: loaded.Hash, loaded: true}
		l.log.Info("snapshot restored", "slot", uint64(slot), "revision", int64(l.state.Revision()))
		return nil
	}
	return nil
}

// reaches fails if the journal ends before slot, of which there is a snapshot: then
// records are missing that clients were told of, and whatever were appended would
// take their place.
func (l *loop) reaches(slot journal.Slot) error {
	wait := newPatience(l.Replica, "read")
	defer wait.over()
	for {
		recs, err := l.readOnce(wait, slot, 1)
		switch {
		case errors.Is(err, journal.ErrTrimmed) || len(recs) > 0:
			return nil
		case errors.Is(err, journal.ErrClosed), errors.Is(err, journal.ErrCorrupt):
			return err
		case err == nil:
			return fmt.Errorf("there is a snapshot of slot %d, and the journal ends before: %w; put it back from a copy, or go on without it, for good, by xb journal accept-loss", slot, ErrLostEnd)
		}
		if err := wait.pause(l.ctx, err); err != nil {
			return err
		}
	}
}

// loadSnapshot tries until the store has answered. What a journal was trimmed
// for must not be passed over because of a moment's trouble.
func (l *loop) loadSnapshot(slot journal.Slot) (snapshot.Loaded, error) {
	var wait *patience
	for {
		loaded, err := snapshot.Load(l.ctx, l.cfg.Store, l.info.ID, slot)
		if err == nil || errors.Is(err, snapshot.ErrBad) || errors.Is(err, journal.ErrCorrupt) || errors.Is(err, journal.ErrNoBlob) {
			return loaded, err
		}
		if wait == nil { // only now: a large one takes its time
			wait = newPatience(l.Replica, "load snapshot")
			defer wait.over()
		}
		if err := wait.pause(l.ctx, err); err != nil {
			return snapshot.Loaded{}, err
		}
	}
}

func (l *loop) listSnapshots() ([]string, error) {
	wait := newPatience(l.Replica, "list snapshots")
	defer wait.over()
	for {
		var names []string
		err := wait.try(l.ctx, func(ctx context.Context) (err error) {
			names, err = l.cfg.Store.ListBlobs(ctx, snapshot.Prefix)
			return err
		})
		if err == nil {
			return names, nil
		}
		if err := wait.pause(l.ctx, err); err != nil {
			return nil, err
		}
	}
}
