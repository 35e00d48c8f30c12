package replica

import (
	"context"
	"crypto/sha256"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// snapshots says when this replica takes a snapshot, and remembers the last ones. At most
// one snapshot is taken at a time.
type snapshots struct {
	schedule snapshot.Schedule
	late     bool // this replica missed a snapshot that it should have stored: it is due at this writer's next record
	looked   bool // this replica has checked whether the servers before it missed a snapshot
	working  bool // a snapshot is being taken
	done     chan result
	// stored are the slots of the last snapshots that this replica stored, or is about to
	// store. Invariant: ascending; len <= keptStored.
	stored []journal.Slot
}

// keptStored is how many of the last stored snapshots are remembered.
const keptStored = 17

// result is the result of taking a snapshot.
type result struct {
	slot   journal.Slot
	hash   [sha256.Size]byte
	hashed bool // hash is the hash of the state
	stored bool
	err    error // of hashing or storing it
}

func newSnapshots(p snapshot.Policy) snapshots {
	return snapshots{schedule: snapshot.NewSchedule(p), done: make(chan result)}
}

// begin notes that a snapshot is due, and says whether to take it now. While another
// snapshot is being taken, the answer is no; a snapshot that must be stored is then late.
func (s *snapshots) begin(store bool) bool {
	s.schedule.Taken()
	if s.working {
		s.late = s.late || store
		return false
	}
	s.working, s.late = true, false
	return true
}

// storing notes that the snapshot at slot will be stored.
func (s *snapshots) storing(slot journal.Slot) {
	s.stored = append(s.stored[max(0, len(s.stored)-keptStored+1):], slot)
}

// catchUp says whether a snapshot is due now although no record asks for it. It is called
// once the tail is reached, and regularly after that. If there was much to replay, the
// servers before this one ended before they stored a snapshot: a snapshot is then due at
// this writer's next record, or now if nobody else writes the journal.
func (s *snapshots) catchUp(state int64, alone bool) bool {
	if !s.looked {
		s.looked = true
		s.late = s.late || s.schedule.Missed(state)
	}
	return s.late && !s.working && alone
}

// due says whether a snapshot is due after a record. mine says that this writer wrote it.
func (s *snapshots) due(state int64, mine bool) bool {
	return s.schedule.Due(state) || s.late && mine && !s.working
}

// recordApplied takes a snapshot after a record of size bytes, if one is due. The replica
// that wrote the record stores the snapshot, and the others compute its hash.
func (l *loop) recordApplied(size int, mine bool) {
	l.snapshots.schedule.Applied(size)
	if l.reads.caughtUp {
		l.catchUpSnapshots()
	}
	if l.snapshots.due(l.state.Bytes(), mine) {
		l.takeSnapshot(mine)
	}
}

// catchUpSnapshots takes the snapshot that was missed, if that is due now.
func (l *loop) catchUpSnapshots() {
	if l.snapshots.catchUp(l.state.Bytes(), l.info.Exclusive) {
		l.takeSnapshot(true)
	}
}

// takeSnapshot begins to take a snapshot of the present state, beside the loop.
func (l *loop) takeSnapshot(store bool) {
	if !l.snapshots.begin(store) {
		return
	}
	if store = store && !l.agreement.Remaking(); store {
		l.snapshots.storing(l.state.Slot())
	}
	frozen, chains, trusted := l.state.Freeze(), l.chains.Clone(), l.agreement.NewestTrusted(l.alone())
	l.group.Go(func() error {
		out := result{slot: frozen.View.Slot()}
		if store {
			l.storeSnapshot(l.ctx, &out, frozen, chains, trusted)
		} else {
			out.hash, out.err = snapshot.Hash(l.ctx, frozen, chains.Last())
			out.hashed = out.err == nil
		}
		select {
		case l.snapshots.done <- out:
		case <-l.ctx.Done():
		}
		return nil
	})
}

// storeSnapshot stores a snapshot. If the snapshot can be read back, storeSnapshot deletes
// the older ones, except for those newer than the trusted snapshot.
func (r *Replica) storeSnapshot(ctx context.Context, out *result, frozen *mvcc.Frozen, chains *record.Chains, trusted journal.Slot) {
	began := time.Now()
	written, err := snapshot.Write(ctx, r.cfg.Store, r.info.ID, snapshot.Author{Writer: r.writer, At: began}, frozen, chains)
	out.hash, out.hashed, out.stored, out.err = written.Hash, written.Hashed, err == nil, err
	if err != nil {
		return
	}
	r.counts.Snapshots.Bytes.Add(uint64(written.Bytes))
	r.counts.Snapshots.Time.Since(began)
	if err := written.ReadBack(ctx, r.cfg.Store); err != nil {
		if ctx.Err() == nil {
			r.log.Warn("snapshot cannot be read back; older snapshots are kept", "slot", uint64(out.slot), "error", err)
		}
		return
	}
	if err := snapshot.DeleteOld(ctx, r.cfg.Store, min(out.slot, trusted)); err != nil {
		r.log.Debug("old snapshots were not deleted", "error", err)
	}
}

// onSnapshot handles a snapshot that was taken. If it was stored, onSnapshot writes its
// hash to the journal.
func (l *loop) onSnapshot(out result) {
	l.snapshots.working = false
	if out.err != nil {
		if l.ctx.Err() == nil {
			l.counts.Snapshots.Failed.Add(1)
			l.log.Warn("snapshot was not stored; it is tried again soon", "slot", uint64(out.slot), "error", out.err)
		}
	} else if out.stored {
		l.counts.Snapshots.Stored.Add(1)
		l.log.Info("snapshot stored", "slot", uint64(out.slot))
	}
	if !out.hashed {
		return
	}
	if !out.stored {
		l.counts.Snapshots.Hashed.Add(1)
	}
	l.agreement.Computed(out.slot, out.hash)
	if out.stored {
		l.mark(out.slot, out.hash)
	}
	l.judge(out.slot)
}

// alone says that no other replica has written for long, or ever.
func (l *loop) alone() bool {
	other := l.turns.LastOther()
	return l.info.Exclusive || other == 0 || other+record.AnchorSpan < l.state.Slot()
}
