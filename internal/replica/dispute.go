package replica

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/record"
	"github.com/xbernetes/xbernetes/internal/replica/agreement"
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
		l.group.Go(func() error { return l.remake(l.ctx, slot, own, trusted) })
	}
	if v.Outvoted && l.agreement.Wait(slot) {
		l.group.Go(func() error { return l.decide(l.ctx, slot) })
	}
}

// patience is how long a replica waits for the claims of others before it stops. The
// others may not have read the marks yet, or may still hash their states.
const patience = 10 * time.Second

// mark writes this replica's hash at a slot to the journal.
func (l *loop) mark(slot journal.Slot, own [sha256.Size]byte) {
	l.agreement.Said(slot)
	l.window.control(record.Snapshot, record.SnapshotMark{Slot: slot, Hash: own}.Append(nil))
}

// decide waits for the claims of other replicas. It fails unless more of them claim this
// replica's hash than another hash.
func (r *Replica) decide(ctx context.Context, slot journal.Slot) error {
	select {
	case <-time.After(patience):
	case <-ctx.Done():
		return ctx.Err()
	}
	var v agreement.Verdict
	if err := r.call(ctx, func(l *loop) { v = l.agreement.Judge(slot) }); err != nil {
		return err
	}
	if !v.Outvoted {
		return nil
	}
	if err := r.disputeStored(ctx, slot); err != nil {
		return err
	}
	return fmt.Errorf("at slot %d this replica has made its state twice, with the same result, and at least as many other replicas have another state: the replicas run different versions of xb, or xb has a defect; stop them all, and run one version everywhere; if they ran one version already, report the defect: %w", slot, ErrDiverged)
}

// remake makes the state at slot anew, beside the loop. If the new state has another hash
// than this replica's state had, remake fails and the replica stops. In both cases it
// disputes the snapshots that may be wrong.
func (r *Replica) remake(ctx context.Context, slot journal.Slot, own [sha256.Size]byte, trusted journal.Slot) error {
	r.log.Warn("another replica has a different state; making this one's anew from the journal to see who is wrong", "slot", uint64(slot))
	made, err := r.archive.Recompute(ctx, slot, trusted)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("at slot %d another replica has a different state, and which one is right cannot be told (%w); check the journal with xb fsck: %w", slot, err, ErrDiverged)
	}
	if made != own {
		if err := r.disputeStored(ctx, slot); err != nil {
			return err
		}
		return fmt.Errorf("at slot %d this server's state differed from the state that the journal gives: its memory, or the snapshot that it started from, was wrong; start it again, and on another machine if this happens again: %w", slot, ErrDiverged)
	}
	r.log.Error("another server's state differs from the state that the journal gives; its snapshots will not be used, and that server should stop by itself", "slot", uint64(slot))
	var known map[journal.Slot][sha256.Size]byte
	if err := r.call(ctx, func(l *loop) { known = l.agreement.OwnHashes() }); err != nil {
		return err
	}
	if err := r.archive.DisputeFrom(ctx, slot, known); err != nil {
		return err
	}
	return r.call(ctx, func(l *loop) {
		l.agreement.Confirm(slot, own)
		l.mark(slot, own)
	})
}

// disputeStored disputes the snapshots from slot on that this replica has stored.
func (r *Replica) disputeStored(ctx context.Context, slot journal.Slot) error {
	var stored []journal.Slot
	if err := r.call(ctx, func(l *loop) { stored = slices.Clone(l.snapshots.stored) }); err != nil {
		return err
	}
	for _, s := range stored {
		if s >= slot {
			r.archive.Dispute(ctx, s)
		}
	}
	return nil
}
