package snapshot

import (
	"context"
	"crypto/sha256"
	"slices"

	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
)

// Hash returns the hash of a state, as manifests and snapshot marks name it: SHA-256
// of the chain at the state's slot and of the SHA-256 of each of its parts. It fails
// if ctx ends first.
func Hash(ctx context.Context, state *mvcc.Frozen, last record.Chain) ([sha256.Size]byte, error) {
	return hashParts(state, last, func([]byte) error { return ctx.Err() })
}

// hashParts hashes a state, and hands each part to a function on the way.
func hashParts(state *mvcc.Frozen, last record.Chain, each func(part []byte) error) ([sha256.Size]byte, error) {
	h := newHasher(last)
	err := state.Parts(func(part []byte) error {
		h.add(sha256.Sum256(part))
		return each(part)
	})
	return h.sum(), err
}

// hasher makes the hash of a state from its chain and the sums of its parts.
type hasher struct{ sums []byte }

func newHasher(last record.Chain) *hasher { return &hasher{sums: slices.Clone(last[:])} }

func (h *hasher) add(part [sha256.Size]byte) { h.sums = append(h.sums, part[:]...) }

func (h *hasher) sum() [sha256.Size]byte { return sha256.Sum256(h.sums) }
