package mvcc

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// mustBeATree checks all that a tree promises, from root down.
func mustBeATree(t testing.TB, root *node) {
	t.Helper()
	depth := -1
	var check func(n *node, level int, lo, hi *string)
	check = func(n *node, level int, lo, hi *string) {
		if n.kids == nil {
			if depth >= 0 && level != depth {
				t.Errorf("leaves at levels %d and %d", depth, level)
			}
			depth = level
			live := 0
			for i, kv := range n.items {
				if i > 0 && kv.Key <= n.items[i-1].Key {
					t.Errorf("%q after %q", kv.Key, n.items[i-1].Key)
				}
				if lo != nil && kv.Key < *lo || hi != nil && kv.Key >= *hi {
					t.Errorf("%q is not between the separators", kv.Key)
				}
				if kv.Live() {
					live++
				}
			}
			if live != n.live {
				t.Errorf("a leaf of %d live keys counts %d", live, n.live)
			}
			if len(n.items) >= maxItems || n != root && len(n.items) == 0 {
				t.Errorf("a leaf of %d keys", len(n.items))
			}
			return
		}
		if n.items != nil || len(n.kids) != len(n.seps)+1 || len(n.kids) >= maxItems {
			t.Fatalf("an inner node of %d items, %d kids, %d separators", len(n.items), len(n.kids), len(n.seps))
		}
		live := 0
		for i, k := range n.kids {
			live += k.live
			from, to := lo, hi
			if i > 0 {
				from = &n.seps[i-1]
			}
			if i < len(n.seps) {
				to = &n.seps[i]
			}
			check(k, level+1, from, to)
		}
		if live != n.live {
			t.Errorf("an inner node of %d live keys counts %d", live, n.live)
		}
	}
	check(root, 0, nil, nil)
	if len(root.kids) == 1 {
		t.Error("a root of one kid")
	}
}

func items(root *node) (out []*KV) {
	root.ascend(KeyRange{End: FromKey}, func(kv *KV) bool {
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
	eachSeed(t, func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		tr := newTree()
		want := map[string]*KV{}
		type copyOf struct {
			root *node
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
					mustReplace(t, tr.put(kv), old)
					want[key] = kv
				case old != nil && !old.Live() && !growing:
					tr.remove(key)
					delete(want, key)
				case growing || r.IntN(10) == 0:
					kv := &KV{Key: key, Version: 1}
					mustReplace(t, tr.put(kv), old)
					want[key] = kv
				}
				if r.IntN(500) == 0 {
					frozen = append(frozen, copyOf{tr.freeze(), sorted()})
				}
			}
			if !growing && r.IntN(2) == 0 { // down to a few neighbours, or nothing
				few := fmt.Sprintf("%06d", r.IntN(2)*r.IntN(space))
				for key, kv := range want {
					if key < few && key > few[:4] {
						continue
					}
					if kv.Live() {
						tr.put(&KV{Key: key})
					}
					tr.remove(key)
					delete(want, key)
				}
			}
			mustBeATree(t, tr.root)
			all := sorted()
			if !slices.Equal(items(tr.root), all) {
				t.Fatalf("round %d: the tree's keys differ", round)
			}
			for range 50 {
				rg := KeyRange{fmt.Sprintf("%06d", r.IntN(space)), fmt.Sprintf("%06d", r.IntN(space))}
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
				if got := tr.root.count(rg); got != n {
					t.Errorf("count %q: %d, want %d", rg, got, n)
				}
				if got := tr.root.get(rg.Key); got != want[rg.Key] {
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
	})
}

// Keys that come in order fill the leaves.
func TestTreeInOrder(t *testing.T) {
	tr := newTree()
	const n = 10000
	for i := range n {
		tr.put(&KV{Key: fmt.Sprintf("%06d", i), Version: 1})
	}
	mustBeATree(t, tr.root)
	leaves := 0
	var walk func(*node)
	walk = func(x *node) {
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
