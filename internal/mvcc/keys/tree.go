package keys

import (
	"slices"
	"strings"
)

// Tree is a B+ tree from key to newest version, tombstones included. The tree and its frozen
// copies share nodes. The tree changes a node that it owns in place, and copies any other
// node first. Each node counts the live keys below it, so that counting a range costs
// O(log n).
type Tree struct {
	root  *Node
	owner *owner // Invariant: of the nodes that only this tree refers to, and of no others
}

// owner is an identity. A node with the tree's owner is not shared.
type owner struct{ _ byte }

const maxItems = 32 // of a leaf, and kids of an inner node, while one is put; one less at rest

// Node is a leaf, or an inner node with all nodes below it. Reading a node never changes it.
type Node struct {
	owner *owner
	live  int // how many live keys are below
	// The versions of a leaf, by key; nil in an inner node.
	items []*KV
	// The kids and separators of an inner node; nil in a leaf. Invariant: len(kids) =
	// len(seps)+1, and every key below kids[i] is < seps[i] <= every key below kids[i+1].
	kids []*Node
	seps []string
}

// newLeaf and newInner allocate a node and the room for all that it may hold in one piece,
// because nodes are copied often.
func newLeaf(o *owner) *Node {
	n := &struct {
		Node
		items [maxItems]*KV
	}{}
	n.Node.owner, n.Node.items = o, n.items[:0]
	return &n.Node
}

func newInner(o *owner) *Node {
	n := &struct {
		Node
		kids [maxItems]*Node
		seps [maxItems - 1]string
	}{}
	n.Node.owner, n.Node.kids, n.Node.seps = o, n.kids[:0], n.seps[:0]
	return &n.Node
}

// NewTree returns an empty tree.
func NewTree() Tree {
	o := new(owner)
	return Tree{root: newLeaf(o), owner: o}
}

// Root returns the present tree. It is valid until the next Put or Remove.
func (t *Tree) Root() *Node { return t.root }

// Freeze returns the present root, which never changes any more: the tree copies a node below
// it before it changes that node.
func (t *Tree) Freeze() *Node {
	t.owner = new(owner)
	return t.root
}

// own returns n if the tree may change it, otherwise a copy.
func (t *Tree) own(n *Node) *Node {
	if n.owner == t.owner {
		return n
	}
	var c *Node
	if n.kids == nil {
		c = newLeaf(t.owner)
		c.items = append(c.items, n.items...)
	} else {
		c = newInner(t.owner)
		c.kids = append(c.kids, n.kids...)
		c.seps = append(c.seps, n.seps...)
	}
	c.live = n.live
	return c
}

// search finds key in a leaf.
func (n *Node) search(key string) (int, bool) {
	return slices.BinarySearchFunc(n.items, key, func(kv *KV, k string) int { return strings.Compare(kv.Key, k) })
}

// child returns the index of the kid below which key belongs.
func (n *Node) child(key string) int {
	lo, hi := 0, len(n.seps)
	for lo < hi {
		m := int(uint(lo+hi) >> 1)
		if n.seps[m] <= key {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

// Get returns the newest version of key, tombstone or not; nil if none.
func (n *Node) Get(key string) *KV {
	for n.kids != nil {
		n = n.kids[n.child(key)]
	}
	if i, ok := n.search(key); ok {
		return n.items[i]
	}
	return nil
}

// Put makes kv the newest version of its key, and returns the version before it; nil if there
// was none.
func (t *Tree) Put(kv *KV) (old *KV) {
	t.root = t.own(t.root)
	old = t.insert(t.root, kv)
	if t.root.full() {
		left := t.root
		right, sep := left.split(kv.Key)
		t.root = newInner(t.owner)
		t.root.live = left.live + right.live
		t.root.kids = append(t.root.kids, left, right)
		t.root.seps = append(t.root.seps, sep)
	}
	return old
}

// insert puts kv below n, which t must own. It may leave n full.
func (t *Tree) insert(n *Node, kv *KV) (old *KV) {
	if n.kids == nil {
		i, ok := n.search(kv.Key)
		if ok {
			old, n.items[i] = n.items[i], kv
		} else {
			n.items = slices.Insert(n.items, i, kv)
		}
	} else {
		i := n.child(kv.Key)
		kid := t.own(n.kids[i])
		n.kids[i] = kid
		old = t.insert(kid, kv)
		if kid.full() {
			right, sep := kid.split(kv.Key)
			n.kids = slices.Insert(n.kids, i+1, right)
			n.seps = slices.Insert(n.seps, i, sep)
		}
	}
	if kv.Live() {
		n.live++
	}
	if old.Live() {
		n.live--
	}
	return old
}

func (n *Node) full() bool { return len(n.items) == maxItems || len(n.kids) == maxItems }

// split takes the right part off a full node, and returns it with the smallest key that
// belongs there. key is the key that filled the node.
func (n *Node) split(key string) (right *Node, sep string) {
	if n.kids == nil {
		return n.splitLeaf(key)
	}
	return n.splitInner()
}

// splitLeaf halves a leaf. If the leaf was filled at its end, keys are likely to come in
// order: then the left part keeps all that it can.
func (n *Node) splitLeaf(key string) (*Node, string) {
	m := len(n.items) / 2
	if n.items[len(n.items)-1].Key == key {
		m = len(n.items) - 4
	}
	right := newLeaf(n.owner)
	right.items = append(right.items, n.items[m:]...)
	clear(n.items[m:])
	n.items = n.items[:m]
	for _, kv := range right.items {
		if kv.Live() {
			right.live++
		}
	}
	n.live -= right.live
	return right, right.items[0].Key
}

func (n *Node) splitInner() (*Node, string) {
	m := len(n.kids) / 2
	sep := n.seps[m-1]
	right := newInner(n.owner)
	right.kids = append(right.kids, n.kids[m:]...)
	right.seps = append(right.seps, n.seps[m:]...)
	clear(n.kids[m:])
	clear(n.seps[m-1:])
	n.kids, n.seps = n.kids[:m], n.seps[:m-1]
	for _, k := range right.kids {
		right.live += k.live
	}
	n.live -= right.live
	return right, sep
}

// Remove removes key, whose newest version is a tombstone. It does not merge nodes: an empty
// node goes, and a node with few items stays, and fills up again.
func (t *Tree) Remove(key string) {
	t.root = t.own(t.root)
	t.removeBelow(t.root, key)
	for len(t.root.kids) == 1 {
		t.root = t.root.kids[0]
	}
	if t.root.kids != nil && len(t.root.kids) == 0 {
		t.root = newLeaf(t.owner)
	}
}

func (t *Tree) removeBelow(n *Node, key string) {
	if n.kids == nil {
		if i, ok := n.search(key); ok {
			n.items = slices.Delete(n.items, i, i+1)
		}
		return
	}
	i := n.child(key)
	kid := t.own(n.kids[i])
	n.kids[i] = kid
	t.removeBelow(kid, key)
	if len(kid.items) > 0 || len(kid.kids) > 0 {
		return
	}
	n.kids = slices.Delete(n.kids, i, i+1)
	if len(n.seps) > 0 {
		s := max(i-1, 0)
		n.seps = slices.Delete(n.seps, s, s+1)
	}
}

// rank counts the live keys below key.
func (n *Node) rank(key string) int {
	sum := 0
	for n.kids != nil {
		i := n.child(key)
		for _, k := range n.kids[:i] {
			sum += k.live
		}
		n = n.kids[i]
	}
	i, _ := n.search(key)
	for _, kv := range n.items[:i] {
		if kv.Live() {
			sum++
		}
	}
	return sum
}

// Count counts the live keys in r.
func (n *Node) Count(r Range) int {
	switch r.End {
	case "":
		if n.Get(r.Key).Live() {
			return 1
		}
		return 0
	case FromKey:
		return n.live - n.rank(r.Key)
	default:
		if r.End <= r.Key {
			return 0
		}
		return n.rank(r.End) - n.rank(r.Key)
	}
}

// Ascend calls yield with the newest version of each key in r, in order,
// tombstones included, until yield returns false.
func (n *Node) Ascend(r Range, yield func(*KV) bool) bool {
	if n.kids == nil {
		i, _ := n.search(r.Key)
		for _, kv := range n.items[i:] {
			if !r.Contains(kv.Key) {
				return false
			}
			if !yield(kv) {
				return false
			}
		}
		return true
	}
	for i := n.child(r.Key); i < len(n.kids); i++ {
		if !n.kids[i].Ascend(r, yield) {
			return false
		}
	}
	return true
}
