package keys

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

var seeds = flag.Uint64("seeds", 6, "how many random trees to try")

func mustBeATree(t testing.TB, root *Node) {
	t.Helper()
	if err := root.Check(); err != nil {
		t.Error(err)
	}
}

func items(root *Node) (out []*KV) {
	root.Ascend(Range{End: FromKey}, func(kv *KV) bool {
		out = append(out, kv)
		return true
	})
	return out
}

func mustReplace(t *testing.T, got, want *KV) {
	t.Helper()
	if got != want {
		t.Fatalf("put replaced %v, want %v", got, want)
	}
}

// TestTree puts, buries and removes keys at random, growing and shrinking by
// turns, and compares with a sorted slice. Frozen copies must not notice.
func TestTree(t *testing.T) {
	for seed := uint64(1); seed <= *seeds; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			testTree(t, seed)
		})
	}
}

func testTree(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	tr := NewTree()
	want := map[string]*KV{}
	type copyOf struct {
		root *Node
		all  []*KV
	}
	var frozen []copyOf
	sorted := func() (all []*KV) {
		for _, kv := range want {
			all = append(all, kv)
		}
		slices.SortFunc(all, func(a, b *KV) int {
			if a.Key < b.Key {
				return -1
			}
			return 1
		})
		return all
	}
	space, next := 1+r.IntN(20000), 0
	for round := range 12 {
		growing := round%2 == 0
		for range 2000 {
			key := fmt.Sprintf("%06d", r.IntN(space))
			if round%4 == 2 { // keys that come in order
				next++
				key = fmt.Sprintf("%06d", space+next)
			}
			old := want[key]
			switch {
			case old.Live() && (!growing || r.IntN(8) == 0):
				kv := &KV{Key: key}
				mustReplace(t, tr.Put(kv), old)
				want[key] = kv
			case old != nil && !old.Live() && !growing:
				tr.Remove(key)
				delete(want, key)
			case growing || r.IntN(10) == 0:
				kv := &KV{Key: key, Version: 1}
				mustReplace(t, tr.Put(kv), old)
				want[key] = kv
			}
			if r.IntN(500) == 0 {
				frozen = append(frozen, copyOf{tr.Freeze(), sorted()})
			}
		}
		if !growing && r.IntN(2) == 0 { // down to a few neighbours, or nothing
			few := fmt.Sprintf("%06d", r.IntN(2)*r.IntN(space))
			for key, kv := range want {
				if key < few && key > few[:4] {
					continue
				}
				if kv.Live() {
					tr.Put(&KV{Key: key})
				}
				tr.Remove(key)
				delete(want, key)
			}
		}
		mustBeATree(t, tr.root)
		all := sorted()
		if !slices.Equal(items(tr.root), all) {
			t.Fatalf("round %d: the tree's keys differ", round)
		}
		for range 50 {
			rg := Range{fmt.Sprintf("%06d", r.IntN(space)), fmt.Sprintf("%06d", r.IntN(space))}
			switch r.IntN(4) {
			case 0:
				rg.End = FromKey
			case 1:
				rg.End = ""
			}
			n := 0
			for _, kv := range all {
				if kv.Live() && rg.Contains(kv.Key) {
					n++
				}
			}
			if got := tr.root.Count(rg); got != n {
				t.Errorf("count %q: %d, want %d", rg, got, n)
			}
			if got := tr.root.Get(rg.Key); got != want[rg.Key] {
				t.Errorf("get %q: %v, want %v", rg.Key, got, want[rg.Key])
			}
		}
	}
	for i, f := range frozen {
		mustBeATree(t, f.root)
		if !slices.Equal(items(f.root), f.all) {
			t.Fatalf("frozen copy %d changed", i)
		}
	}
}

// Keys that come in order fill the leaves.
func TestTreeInOrder(t *testing.T) {
	tr := NewTree()
	const n = 10000
	for i := range n {
		tr.Put(&KV{Key: fmt.Sprintf("%06d", i), Version: 1})
	}
	mustBeATree(t, tr.root)
	leaves := 0
	var walk func(*Node)
	walk = func(x *Node) {
		if x.kids == nil {
			leaves++
		}
		for _, k := range x.kids {
			walk(k)
		}
	}
	walk(tr.root)
	if full := n / leaves; full < maxItems*3/4 {
		t.Errorf("%d keys a leaf", full)
	}
}
