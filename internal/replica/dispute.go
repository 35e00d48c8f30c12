package replica

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
	"github.com/xbernetes/xbernetes/internal/replica/access"
	"github.com/xbernetes/xbernetes/internal/replica/agreement"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// judge acts on what the marks of a slot mean for this replica.
func (l *loop) judge(slot journal.Slot) {
	v := l.agreement.Judge(slot)
	own := l.agreement.Own(slot)
	if v.Agreed && l.trim.agreed(slot, own) {
		l.releaseRecords()
	}
	if v.Claim {
		l.mark(slot, own)
	}
	if v.Remake {
		l.agreement.Doubt(slot)
		trusted := l.agreement.NewestTrusted(false)
		l.group.Go(func() error { return l.remake(slot, own, trusted) })
	}
	if v.Outvoted && l.agreement.Wait(slot) {
		l.group.Go(func() error { return l.decide(slot) })
	}
}

// patience is how long a replica waits for the claims of others before it stops: they
// perhaps have not read the marks yet, or still hash their states.
const patience = 10 * time.Second

// decide waits for the claims of others, and fails unless more of them are with this
// replica than against it then.
func (l *loop) decide(slot journal.Slot) error {
	select {
	case <-time.After(patience):
	case <-l.ctx.Done():
		return l.ctx.Err()
	}
	var v agreement.Verdict
	if err := l.call(l.ctx, func(l *loop) { v = l.agreement.Judge(slot) }); err != nil {
		return err
	}
	if !v.Outvoted {
		return nil
	}
	if err := l.disputeStored(slot); err != nil {
		return err
	}
	return fmt.Errorf("at slot %d as many other replicas, or more, make another state of the same records, as this one did twice: they run different versions of xb, or one has a defect; stop them, run one version, and report it if it was: %w", slot, ErrDiverged)
}

// mark tells the journal of this replica's hash at a slot.
func (l *loop) mark(slot journal.Slot, own [sha256.Size]byte) {
	l.agreement.Said(slot)
	l.window.control(record.Snapshot, record.SnapshotMark{Slot: slot, Hash: own}.Append(nil))
}

// remake makes the state at slot anew, beside the loop. It fails, and the replica
// stops, unless that gives the hash that this replica had. Either way it disputes the
// snapshots that may be wrong.
func (l *loop) remake(slot journal.Slot, own [sha256.Size]byte, trusted journal.Slot) error {
	l.log.Warn("another replica has a different state; making this one's anew from the journal to see who is wrong", "slot", uint64(slot))
	made, err := l.recompute(l.ctx, slot, trusted)
	if l.ctx.Err() != nil {
		return l.ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("at slot %d another replica has a different state, and which one is right cannot be told (%w); check the journal with xb fsck: %w", slot, err, ErrDiverged)
	}
	if made != own {
		if err := l.disputeStored(slot); err != nil {
			return err
		}
		return fmt.Errorf("at slot %d this server's state was not what the journal makes of it: its memory, or the snapshot that it started from, was wrong; start it again, on another machine if that comes back: %w", slot, ErrDiverged)
	}
	l.log.Error("another server's state is not what the journal makes of it; its snapshots will not be used, and it should stop by itself", "slot", uint64(slot))
	var known map[journal.Slot][sha256.Size]byte
	if err := l.call(l.ctx, func(l *loop) { known = l.agreement.OwnHashes() }); err != nil {
		return err
	}
	if err := l.disputeFrom(l.ctx, slot, known); err != nil {
		return err
	}
	return l.call(l.ctx, func(l *loop) {
		l.agreement.Confirm(slot, own)
		l.mark(slot, own)
	})
}

// disputeStored disputes the snapshots from slot on that this replica has stored.
func (l *loop) disputeStored(slot journal.Slot) error {
	var stored []journal.Slot
	if err := l.call(l.ctx, func(l *loop) { stored = slices.Clone(l.snapshots.stored) }); err != nil {
		return err
	}
	for _, s := range stored {
		if s >= slot {
			l.dispute(l.ctx, s)
		}
	}
	return nil
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
		if newer > slot {
			r.disputeUnless(ctx, newer, known[newer])
		}
	}
	return nil
}

// disputeUnless disputes the snapshot at slot unless its manifest names that hash, or it
// was deleted.
func (r *Replica) disputeUnless(ctx context.Context, slot journal.Slot, hash [sha256.Size]byte) {
	m, err := r.access.Manifest(ctx, slot)
	if ctx.Err() == nil && !errors.Is(err, journal.ErrNoBlob) && m.Hash != hex.EncodeToString(hash[:]) {
		r.dispute(ctx, slot)
	}
}

// dispute stores, beside a snapshot, that nobody should start from it.
func (r *Replica) dispute(ctx context.Context, slot journal.Slot) {
	name := snapshot.DisputeOf(slot)
	if err := r.cfg.Store.PutBlob(ctx, name, fmt.Appendf(nil, "writer %016x\n", uint64(r.writer))); err != nil && ctx.Err() == nil {
		r.log.Warn("a wrong snapshot could not be marked; delete it by hand", "slot", uint64(slot), "blob", name, "error", err)
	}
}

// recompute makes the hash of the state at slot anew: from the snapshot that is trusted
// (0: none is known); otherwise from the first record; or, if that was trimmed, from the
// oldest snapshot, because records are given up only for one that was trusted.
func (r *Replica) recompute(ctx context.Context, slot, trusted journal.Slot) (hash [sha256.Size]byte, err error) {
	names, err := r.access.Snapshots(ctx)
	if err != nil {
		return hash, err
	}
	below := slices.DeleteFunc(snapshot.Undisputed(names), func(s journal.Slot) bool { return s >= slot })
	slices.Reverse(below) // oldest first
	if slices.Contains(below, trusted) {
		if hash, err = r.recomputeFrom(ctx, trusted, slot, below); err == nil || ctx.Err() != nil {
			return hash, err
		}
	}
	hash, err = r.recomputeFrom(ctx, 0, slot, below)
	if errors.Is(err, journal.ErrTrimmed) && len(below) > 0 {
		return r.recomputeFrom(ctx, below[0], slot, below)
	}
	return hash, err
}

// recomputeFrom makes the hash of the state at slot anew from the snapshot at base, or
// from nothing. It disputes each snapshot on the way that has another state.
func (r *Replica) recomputeFrom(ctx context.Context, base, slot journal.Slot, snapshots []journal.Slot) (hash [sha256.Size]byte, err error) {
	state, chains := mvcc.New(), record.NewChains(r.info.ID)
	if base > 0 {
		loaded, err := r.access.Load(ctx, base)
		if err != nil {
			return hash, err
		}
		state, chains = loaded.State, loaded.Chains
	}
	for _, next := range append(slices.Clone(snapshots), slot) {
		if next <= base {
			continue
		}
		if err := r.replayTo(ctx, next, state, chains); err != nil {
			return hash, err
		}
		if hash, err = snapshot.Hash(ctx, state.Freeze(), chains.Last()); err != nil {
			return hash, err
		}
		if next < slot {
			r.disputeUnless(ctx, next, hash)
		}
	}
	return hash, nil
}

// replayTo applies the records up to slot to a state that nobody else sees.
func (r *Replica) replayTo(ctx context.Context, slot journal.Slot, state *mvcc.State, chains *record.Chains) error {
	c := r.access.Begin(access.Read)
	defer c.End()
	for state.Slot() < slot {
		recs, err := c.Read(ctx, state.Slot()+1, int(min(slot-state.Slot(), fetchLimit)))
		switch {
		case errors.Is(err, journal.ErrTrimmed), errors.Is(err, journal.ErrCorrupt), errors.Is(err, journal.ErrClosed):
			return err
		case err != nil || len(recs) == 0:
			if err := c.Pause(ctx, err); err != nil {
				return err
			}
		}
		for _, rec := range recs {
			replay(state, chains, r.info.ID, rec)
		}
	}
	return nil
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
