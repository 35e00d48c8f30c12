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
	"github.com/xbernetes/xbernetes/internal/replica/access"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// judge acts on what the marks of a slot mean for this replica.
func (l *loop) judge(slot journal.Slot) error {
	v := l.agreement.Judge(slot)
	own := l.agreement.Own(slot)
	if v.Agreed && l.trim.agreed(slot, own) {
		l.releaseRecords()
	}
	if v.Remake {
		l.agreement.Doubt(slot)
		l.group.Go(func() error { return l.remake(slot, own) })
	}
	if v.Diverged {
		return fmt.Errorf("at slot %d another replica makes another state of the same records, as this one did twice: they run different versions of xb, or one has a defect; stop them, run one version, and report it if it was: %w", slot, ErrDiverged)
	}
	return nil
}

// remake makes the state at slot anew, beside the loop. It fails, and the replica
// stops, unless that gives the hash that this replica had. The snapshots of the replica
// that is wrong, from that slot on, are disputed, by both.
func (l *loop) remake(slot journal.Slot, own [sha256.Size]byte) error {
	l.log.Warn("another replica has a different state; making this one's anew from the journal to see who is wrong", "slot", uint64(slot))
	made, err := l.recompute(l.ctx, slot)
	if l.ctx.Err() != nil {
		return l.ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("at slot %d another replica has a different state, and which one is right cannot be told (%w); check the journal with xb fsck: %w", slot, err, ErrDiverged)
	}
	var known map[journal.Slot][sha256.Size]byte
	var stored []journal.Slot
	if err := l.call(l.ctx, func(l *loop) {
		known, stored = l.agreement.OwnHashes(), slices.Clone(l.snapshots.stored)
	}); err != nil {
		return err
	}
	if made != own {
		for _, s := range stored {
			if s >= slot {
				l.dispute(l.ctx, s)
			}
		}
		return fmt.Errorf("at slot %d this server's state was not what the journal makes of it: its memory, or the snapshot that it started from, was wrong; start it again, on another machine if that comes back: %w", slot, ErrDiverged)
	}
	l.log.Error("another server's state is not what the journal makes of it; its snapshots will not be used, and it should stop by itself", "slot", uint64(slot))
	if err := l.disputeFrom(l.ctx, slot, known); err != nil {
		return err
	}
	return l.call(l.ctx, func(l *loop) {
		l.agreement.Confirm(slot, own)
		l.window.control(record.Snapshot, record.SnapshotMark{Slot: slot, Hash: own}.Append(nil))
	})
}

// disputeFrom disputes the snapshot at slot, and all later ones that are not as this
// replica has computed them.
func (r *Replica) disputeFrom(ctx context.Context, slot journal.Slot, known map[journal.Slot][sha256.Size]byte) error {
	r.dispute(ctx, slot)
	names, err := r.access.Snapshots(ctx)
	if err != nil {
		return err
	}
	for _, newer := range snapshot.Undisputed(names) {
		m, err := snapshot.ReadManifest(ctx, r.cfg.Store, newer)
		if newer > slot && (err != nil || m.Hash != fmt.Sprintf("%x", known[newer])) {
			r.dispute(ctx, newer)
		}
	}
	return nil
}

// dispute stores, beside a snapshot, that nobody should start from it.
func (r *Replica) dispute(ctx context.Context, slot journal.Slot) {
	name := snapshot.DisputeOf(slot)
	if err := r.cfg.Store.PutBlob(ctx, name, fmt.Appendf(nil, "writer %016x\n", uint64(r.writer))); err != nil && ctx.Err() == nil {
		r.log.Warn("a wrong snapshot could not be marked; delete it by hand", "slot", uint64(slot), "blob", name, "error", err)
	}
}

// recompute makes the hash of the state at slot from the newest snapshot below it that
// nobody disputes, or from nothing.
func (r *Replica) recompute(ctx context.Context, slot journal.Slot) (hash [sha256.Size]byte, err error) {
	names, err := r.access.Snapshots(ctx)
	if err != nil {
		return hash, err
	}
	state, chains := mvcc.New(), record.NewChains(r.info.ID)
	for _, below := range snapshot.Undisputed(names) {
		if below >= slot {
			continue
		}
		if loaded, err := r.access.Load(ctx, below); err == nil {
			state, chains = loaded.State, loaded.Chains
			break
		}
	}
	c := r.access.Begin(access.Read)
	defer c.End()
	for state.Slot() < slot {
		recs, err := c.Read(ctx, state.Slot()+1, int(min(slot-state.Slot(), fetchLimit)))
		switch {
		case errors.Is(err, journal.ErrTrimmed), errors.Is(err, journal.ErrCorrupt), errors.Is(err, journal.ErrClosed):
			return hash, err
		case err != nil || len(recs) == 0:
			if err := c.Pause(ctx, err); err != nil {
				return hash, err
			}
		}
		for _, rec := range recs {
			replay(state, chains, r.info.ID, rec)
		}
	}
	return snapshot.Hash(ctx, state.Freeze(), chains.Last())
}

// replay applies the record of the next slot to a state that nobody else sees.
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
