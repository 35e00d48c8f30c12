package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
)

// Written is what Write came to.
type Written struct {
	Hash     [sha256.Size]byte // of the state; only if Hashed is set
	Hashed   bool              // the whole state was hashed, even if it could not be stored
	Bytes    int64             // stored so far, compressed, without the manifest
	manifest Manifest
}

// Write stores a state, and the chains up to its slot, as the snapshot at that slot.
// A crash on the way leaves blobs without a manifest, which nobody reads. If the same
// snapshot is there already, whoever wrote it, that is no error, also where the store lets
// nobody replace a blob. After an error the snapshot may be there or not.
func Write(ctx context.Context, blobs journal.Blobs, id journal.ID, by Author, state *mvcc.Frozen, chains *record.Chains) (w Written, err error) {
	m := &w.manifest
	*m = Manifest{Format: journal.FormatVersion, Journal: id.String(), Slot: state.View.Slot()}
	size := total{most: MaxState}
	w.Hash, err = hashParts(state, chains.Last(), func(part []byte) error {
		if err := size.add(part); err != nil {
			return err
		}
		name, err := w.putPart(ctx, blobs, part)
		m.Parts = append(m.Parts, name)
		return err
	})
	if err != nil {
		return w, err
	}
	w.Hashed = true
	m.Hash = hex.EncodeToString(w.Hash[:])
	if m.Chains, err = w.putPart(ctx, blobs, chains.Append(nil)); err != nil {
		return w, err
	}
	m.Writer, m.Written, m.Bytes = fmt.Sprintf("%016x", uint64(by.Writer)), by.At.UTC().Truncate(time.Second), w.Bytes
	return w, m.put(ctx, blobs)
}

// put stores the manifest, unless one of the same state is there.
func (m *Manifest) put(ctx context.Context, blobs journal.Blobs) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	err = blobs.PutBlob(ctx, Folder(m.Slot)+manifestName, data)
	if err == nil {
		return nil
	}
	if there, bad := ReadManifest(ctx, blobs, m.Slot); bad == nil && there.sameState(m) {
		return nil
	}
	return err
}

// putPart stores a part, compressed, and returns the name of its blob.
func (w *Written) putPart(ctx context.Context, blobs journal.Blobs, part []byte) (name string, err error) {
	data := record.Compress(nil, part)
	sum := sha256.Sum256(data)
	w.Bytes += int64(len(data))
	name = Folder(w.manifest.Slot) + hex.EncodeToString(sum[:])
	return name, blobs.PutBlob(ctx, name, data)
}

// ReadBack reads what Write stored, a part at a time, and fails unless all of it can
// be read.
func (w *Written) ReadBack(ctx context.Context, blobs journal.Blobs) error {
	if _, err := getPart(ctx, blobs, w.manifest.Chains, maxChains); err != nil {
		return err
	}
	for i, name := range w.manifest.Parts {
		b, err := getPart(ctx, blobs, name, maxPart(i))
		if err != nil {
			return err
		}
		if i == 0 {
			continue // the first part holds no keys
		}
		if _, err := mvcc.ParsePart(b); err != nil {
			return fmt.Errorf("%s: %w: %w", name, ErrBad, err)
		}
	}
	return nil
}
