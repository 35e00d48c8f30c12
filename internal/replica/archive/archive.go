// Package archive makes states of a journal and the snapshots beside it, and tells other
// servers which snapshots are wrong. It proposes nothing, and keeps no state.
package archive

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
	"github.com/xbernetes/xbernetes/internal/replica/access"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// Archive is a journal with its snapshots. Its methods are safe for concurrent use.
type Archive struct {
	store  journal.Store
	access *access.Access // calls store
	id     journal.ID
	writer mvcc.WriterID // named by the disputes that this replica stores
	log    *slog.Logger
}

// New returns the archive of the journal in store, which calls reaches.
func New(store journal.Store, calls *access.Access, writer mvcc.WriterID, log *slog.Logger) *Archive {
	return &Archive{store: store, access: calls, id: store.Info().ID, writer: writer, log: log}
}

// Restored is the state that a replica starts from: that of a snapshot, or the empty one
// at slot 0.
type Restored struct {
	State  *mvcc.State
	Chains *record.Chains    // Invariant: Chains.Slot() == State.Slot()
	Hash   [sha256.Size]byte // of the snapshot
}

// Restore returns the state of the newest snapshot that is whole and not disputed, or
// the empty one.
func (a *Archive) Restore(ctx context.Context) (Restored, error) {
	from := a.empty()
	// While snapshots are loaded, running replicas may replace them by newer ones.
	for tried := []journal.Slot(nil); from.State.Slot() == 0; {
		found, err := a.undisputed(ctx)
		if err != nil || slices.Equal(found, tried) {
			return from, err
		}
		tried = found
		if from, err = a.newest(ctx, found); err != nil {
			return from, err
		}
	}
	return from, nil
}

func (a *Archive) empty() Restored {
	return Restored{State: mvcc.New(), Chains: record.NewChains(a.id)}
}

// undisputed returns the slots of the snapshots that nobody disputes, newest first.
func (a *Archive) undisputed(ctx context.Context) ([]journal.Slot, error) {
	names, err := a.access.Snapshots(ctx)
	if err != nil {
		return nil, err
	}
	return snapshot.Undisputed(names), nil
}

// newest returns the state of the first of the snapshots that is whole, or the empty one.
func (a *Archive) newest(ctx context.Context, slots []journal.Slot) (Restored, error) {
	for _, slot := range slots {
		var loaded snapshot.Loaded
		_, err := a.access.Manifest(ctx, slot)
		if err == nil {
			// The slot bounds how large its snapshot may be, so the journal must hold it.
			if err := a.access.Reaches(ctx, slot); err != nil {
				return a.empty(), err
			}
			loaded, err = a.access.Load(ctx, slot)
		}
		if ctx.Err() != nil {
			return a.empty(), ctx.Err()
		}
		if err != nil {
			a.log.Warn("snapshot cannot be used; trying another one", "slot", uint64(slot), "error", err)
			continue
		}
		a.log.Info("snapshot restored", "slot", uint64(slot), "revision", int64(loaded.State.Revision()))
		return Restored{loaded.State, loaded.Chains, loaded.Hash}, nil
	}
	return a.empty(), nil
}

// CanStartFrom fails unless the snapshot at slot can be read, is not disputed, and has that
// hash, so that a replica would start from it. It fails with journal.ErrNoBlob if the
// snapshot was deleted.
func (a *Archive) CanStartFrom(ctx context.Context, slot journal.Slot, hash [sha256.Size]byte) error {
	names, err := a.store.ListBlobs(ctx, snapshot.Folder(slot))
	if err != nil {
		return err
	}
	if slices.Contains(names, snapshot.DisputeOf(slot)) {
		return fmt.Errorf("disputed by another server: %w", snapshot.ErrBad)
	}
	loaded, err := snapshot.Load(ctx, a.store, a.id, slot)
	if err == nil && loaded.Hash != hash {
		err = snapshot.ErrBad
	}
	return err
}

// Recompute makes the hash of the state at slot anew. It begins with the trusted snapshot;
// if trusted is 0, with the first record; if that record was trimmed, with the oldest
// snapshot, which was trusted when the record was given up. It disputes each snapshot on
// the way that has another state.
func (a *Archive) Recompute(ctx context.Context, slot, trusted journal.Slot) (hash [sha256.Size]byte, err error) {
	found, err := a.undisputed(ctx)
	if err != nil {
		return hash, err
	}
	below := slices.DeleteFunc(found, func(s journal.Slot) bool { return s >= slot })
	slices.Reverse(below) // oldest first
	if slices.Contains(below, trusted) {
		if hash, err = a.recomputeFrom(ctx, trusted, slot, below); err == nil || ctx.Err() != nil {
			return hash, err
		}
	}
	hash, err = a.recomputeFrom(ctx, 0, slot, below)
	if errors.Is(err, journal.ErrTrimmed) && len(below) > 0 {
		return a.recomputeFrom(ctx, below[0], slot, below)
	}
	return hash, err
}

// recomputeFrom makes the hash of the state at slot anew from the snapshot at base, or
// from the first record if base is 0.
func (a *Archive) recomputeFrom(ctx context.Context, base, slot journal.Slot, snapshots []journal.Slot) (hash [sha256.Size]byte, err error) {
	from := a.empty()
	if base > 0 {
		loaded, err := a.access.Load(ctx, base)
		if err != nil {
			return hash, err
		}
		from.State, from.Chains = loaded.State, loaded.Chains
	}
	for _, next := range append(slices.Clone(snapshots), slot) {
		if next <= base {
			continue
		}
		if err := a.replay(ctx, next, from.State, from.Chains); err != nil {
			return hash, err
		}
		if hash, err = snapshot.Hash(ctx, from.State.Freeze(), from.Chains.Last()); err != nil {
			return hash, err
		}
		if next < slot {
			a.disputeUnless(ctx, next, hash)
		}
	}
	return hash, nil
}

// readAtOnce is how many records are read at once.
const readAtOnce = 64

// replay applies the records up to slot to a state that nobody else sees.
func (a *Archive) replay(ctx context.Context, slot journal.Slot, state *mvcc.State, chains *record.Chains) error {
	c := a.access.Begin(access.Read)
	defer c.End()
	for state.Slot() < slot {
		recs, err := c.Read(ctx, state.Slot()+1, int(min(slot-state.Slot(), readAtOnce)))
		switch {
		case errors.Is(err, journal.ErrTrimmed), errors.Is(err, journal.ErrCorrupt), errors.Is(err, journal.ErrClosed):
			return err
		case err != nil || len(recs) == 0:
			if err := c.Pause(ctx, err); err != nil {
				return err
			}
		}
		for _, rec := range recs {
			apply(state, chains, a.id, rec)
		}
	}
	return nil
}

// pruneAtOnce is how many old versions are dropped from the state after each record.
const pruneAtOnce = 512

// apply applies the record of the next slot to a state that nobody else sees.
func apply(state *mvcc.State, chains *record.Chains, id journal.ID, rec []byte) {
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
