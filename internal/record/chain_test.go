package record

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/xbernetes/xbernetes/internal/journal"
)

var (
	ours   = journal.ID{1, 2, 3}
	theirs = journal.ID{9}
)

// longChains returns chains at slot n.
func longChains(n int) *Chains {
	c := NewChains(ours)
	for i := range n {
		c.Extend(DigestOf([]byte{byte(i), byte(i >> 8)}))
	}
	return c
}

// A record is taken at exactly the anchors of the last AnchorSpan slots, with
// the chain that was there.
func TestCheck(t *testing.T) {
	for _, n := range []int{0, 1, AnchorSpan - 1, AnchorSpan, AnchorSpan + 1, 3*AnchorSpan + 7} {
		var chains []Chain // by slot
		c := NewChains(ours)
		chains = append(chains, c.Last())
		for i := range n {
			c.Extend(DigestOf([]byte{byte(i), byte(i >> 8)}))
			chains = append(chains, c.Last())
		}
		if c.Slot() != journal.Slot(n) {
			t.Fatalf("slot %d after %d records", c.Slot(), n)
		}
		for slot, chain := range chains {
			h := Header{Journal: ours, Anchor: journal.Slot(slot), AnchorChain: chain}
			want := slot > n-AnchorSpan
			if err := c.Check(ours, &h); (err == nil) != want {
				t.Errorf("at slot %d, anchor %d: %v", n+1, slot, err)
			}
			h.AnchorChain[31] ^= 1
			if err := c.Check(ours, &h); !errors.Is(err, lateOr(want, ErrForked)) {
				t.Errorf("at slot %d, anchor %d of another history: %v", n+1, slot, err)
			}
		}
		// Another slot's chain, where the ring holds it under the same index.
		for _, anchor := range []journal.Slot{journal.Slot(n) - AnchorSpan, journal.Slot(n) + 1, journal.Slot(n) + AnchorSpan, math.MaxUint64} {
			if err := c.Check(ours, &Header{Journal: ours, Anchor: anchor, AnchorChain: c.ring[anchor%AnchorSpan]}); !errors.Is(err, lateOr(anchor > journal.Slot(n), ErrForked)) {
				t.Errorf("at slot %d, anchor %d out of reach: %v", n+1, anchor, err)
			}
		}
		if err := c.Check(theirs, &Header{Journal: ours, Anchor: c.Slot(), AnchorChain: c.Last()}); !errors.Is(err, ErrForeign) {
			t.Errorf("another journal's record: %v", err)
		}
	}
}

// lateOr is err for an anchor that is not too far back.
func lateOr(near bool, err error) error {
	if near {
		return err
	}
	return ErrForeign
}

// One bit anywhere below changes every chain above.
func TestChainBindsHistory(t *testing.T) {
	a, b := NewChains(ours), NewChains(ours)
	a.Extend(DigestOf([]byte("one")))
	b.Extend(DigestOf([]byte("two")))
	for range 5 {
		if a.Last() == b.Last() {
			t.Fatal("two histories have one chain")
		}
		a.Extend(DigestOf([]byte("same")))
		b.Extend(DigestOf([]byte("same")))
	}
	if a := NewChains(theirs); a.Last() == NewChains(ours).Last() {
		t.Fatal("two journals start with one chain")
	}
}

func TestParseChains(t *testing.T) {
	for _, n := range []int{0, 1, AnchorSpan - 1, AnchorSpan, 2*AnchorSpan + 5} {
		c := longChains(n)
		b := c.Append(nil)
		back, err := ParseChains(c.Slot(), b)
		if err != nil {
			t.Fatal(err)
		}
		if *back != *c {
			t.Errorf("chains at slot %d do not come back", n)
		}
		for _, bad := range [][]byte{nil, b[1:], append(bytes.Clone(b), 0)} {
			if _, err := ParseChains(c.Slot(), bad); !errors.Is(err, ErrMalformed) {
				t.Errorf("%d bytes at slot %d: %v", len(bad), n, err)
			}
		}
	}
}

func FuzzParseChains(f *testing.F) {
	f.Add(uint64(0), longChains(0).Append(nil))
	f.Add(uint64(3), longChains(3).Append(nil))
	f.Add(uint64(math.MaxUint64), longChains(2*AnchorSpan).Append(nil))
	f.Fuzz(func(t *testing.T, slot uint64, b []byte) {
		c, err := ParseChains(journal.Slot(slot), b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Error(err)
			}
			return
		}
		if !bytes.Equal(c.Append(nil), b) {
			t.Error("does not encode to what it was decoded from")
		}
	})
}
