package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"

	"golang.org/x/sync/errgroup"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
)

// Loaded is a snapshot as Load read it.
type Loaded struct {
	State  *mvcc.State
	Chains *record.Chains
	Hash   [sha256.Size]byte // computed from what was loaded
}

// loaders is how many parts are loaded at once.
const loaders = 8

// Load reads and checks the snapshot at slot. The error wraps ErrBad, or is one of
// the store's.
func Load(ctx context.Context, blobs journal.Blobs, id journal.ID, slot journal.Slot) (Loaded, error) {
	m, err := ReadManifest(ctx, blobs, slot)
	if err != nil {
		return Loaded{}, err
	}
	if m.Journal != id.String() || m.Format != journal.FormatVersion {
		return Loaded{}, fmt.Errorf("manifest of journal %s, format %d: %w", m.Journal, m.Format, ErrBad)
	}
	parts, err := getParts(ctx, blobs, m.Parts, MaxState)
	if err != nil {
		return Loaded{}, err
	}
	ring, err := getPart(ctx, blobs, m.Chains, maxChains)
	if err != nil {
		return Loaded{}, err
	}
	var out Loaded
	if out.Chains, err = record.ParseChains(slot, ring); err != nil {
		return Loaded{}, fmt.Errorf("%w: %w", ErrBad, err)
	}
	if out.Hash = parts.hash(out.Chains.Last()); hex.EncodeToString(out.Hash[:]) != m.Hash {
		return Loaded{}, fmt.Errorf("hash differs: %w", ErrBad)
	}
	if out.State, err = mvcc.Thaw(parts.first, parts.keys); err != nil {
		return Loaded{}, fmt.Errorf("%w: %w", ErrBad, err)
	}
	if out.State.Slot() != slot {
		return Loaded{}, fmt.Errorf("state of slot %d: %w", out.State.Slot(), ErrBad)
	}
	return out, nil
}

// parts is a state in its stored form, out of its blobs.
type parts struct {
	first []byte
	keys  []mvcc.Part         // the other parts, in order
	sums  [][sha256.Size]byte // of the first part and the others, in order
}

func (p *parts) hash(last record.Chain) [sha256.Size]byte {
	h := newHasher(last)
	for _, sum := range p.sums {
		h.add(sum)
	}
	return h.sum()
}

// getParts gets and decodes all parts, several at a time, of at most most bytes in all.
func getParts(ctx context.Context, blobs journal.Blobs, names []string, most int64) (parts, error) {
	size := total{most: most}
	out := parts{sums: make([][sha256.Size]byte, len(names)), keys: make([]mvcc.Part, len(names)-1)}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(loaders)
	for i, name := range names {
		g.Go(func() error {
			b, err := getPart(ctx, blobs, name, maxPart(i))
			if err != nil {
				return err
			}
			if err := size.add(b); err != nil {
				return err
			}
			out.sums[i] = sha256.Sum256(b)
			if i == 0 {
				out.first = b
				return nil
			}
			if out.keys[i-1], err = mvcc.ParsePart(b); err != nil {
				return fmt.Errorf("%w: %w", ErrBad, err)
			}
			return nil
		})
	}
	return out, g.Wait()
}

// getPart gets a blob of a snapshot and decompresses it, to most bytes at most.
func getPart(ctx context.Context, blobs journal.Blobs, name string, most int) ([]byte, error) {
	data, err := blobs.GetBlob(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("get part: %w", err)
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != path.Base(name) {
		return nil, fmt.Errorf("bytes of %s differ from its name: %w", name, ErrBad)
	}
	raw, err := record.Decompress(data, most)
	if err != nil {
		return nil, fmt.Errorf("decompress %s: %w: %w", name, ErrBad, err)
	}
	return raw, nil
}
