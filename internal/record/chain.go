package record

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// Chain is the hash chain at a slot: it binds that slot's record and all below.
type Chain [sha256.Size]byte

// Digest is the hash of one record's bytes.
type Digest [sha256.Size]byte

// DigestOf hashes a record.
func DigestOf(rec []byte) Digest { return sha256.Sum256(rec) }

// Chains holds the chain at the last slots, as far back as an anchor may lie.
type Chains struct {
	slot journal.Slot
	ring [AnchorSpan]Chain // at slot%AnchorSpan
}

// NewChains returns the chain before slot 1, which is the hash of the journal's ID.
func NewChains(id journal.ID) *Chains {
	c := &Chains{}
	c.ring[0] = sha256.Sum256(id[:])
	return c
}

// Slot returns the last slot in the chain.
func (c *Chains) Slot() journal.Slot { return c.slot }

// Last returns the chain at the last slot.
func (c *Chains) Last() Chain { return c.ring[c.slot%AnchorSpan] }

// Extend extends the chain by the next slot's record, even if that is void.
func (c *Chains) Extend(d Digest) {
	var b [2 * sha256.Size]byte
	last := c.Last()
	copy(b[:], last[:])
	copy(b[sha256.Size:], d[:])
	c.slot++
	c.ring[c.slot%AnchorSpan] = sha256.Sum256(b[:])
}

// ErrForeign: a record of another journal, or one that landed so late that its
// anchor is out of reach. The slot that holds it is void.
var ErrForeign = errors.New("record does not belong here")

// ErrForked: a record of this journal whose writer had applied other records than those
// below it, or more. The journal has two histories, whatever the cause. Nothing may be
// written to it any more.
var ErrForked = errors.New("record is of another history of this journal")

// Check says whether a record belongs at the slot after the last. The error
// wraps ErrForeign or ErrForked.
func (c *Chains) Check(id journal.ID, h *Header) error {
	switch {
	case h.Journal != id:
		return fmt.Errorf("record is of journal %s: %w", h.Journal, ErrForeign)
	case h.Anchor > c.slot:
		return fmt.Errorf("anchor %d at slot %d: %w", h.Anchor, c.slot+1, ErrForked)
	case c.slot-h.Anchor >= AnchorSpan:
		return fmt.Errorf("anchor %d at slot %d is too far back: %w", h.Anchor, c.slot+1, ErrForeign)
	case h.AnchorChain != c.ring[h.Anchor%AnchorSpan]:
		return fmt.Errorf("chain differs at slot %d: %w", h.Anchor, ErrForked)
	}
	return nil
}

// Append appends the chains at the last slots, oldest first, to dst.
func (c *Chains) Append(dst []byte) []byte {
	for s := c.oldest(); ; s++ {
		dst = append(dst, c.ring[s%AnchorSpan][:]...)
		if s == c.slot {
			return dst
		}
	}
}

func (c *Chains) oldest() journal.Slot {
	if c.slot < AnchorSpan {
		return 0
	}
	return c.slot - AnchorSpan + 1
}

// ParseChains decodes what Append wrote at slot. The error wraps ErrMalformed.
func ParseChains(slot journal.Slot, b []byte) (*Chains, error) {
	c := &Chains{slot: slot}
	oldest := c.oldest()
	if uint64(len(b)) != uint64(slot-oldest+1)*sha256.Size {
		return nil, fmt.Errorf("chains of %d bytes at slot %d: %w", len(b), slot, ErrMalformed)
	}
	for i := range slot - oldest + 1 {
		copy(c.ring[(oldest+i)%AnchorSpan][:], b[i*sha256.Size:])
	}
	return c, nil
}

// Clone returns a copy, which does not change with c.
func (c *Chains) Clone() *Chains {
	d := *c
	return &d
}
