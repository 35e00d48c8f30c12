package keys

import "fmt"

// Check returns a fault of the tree below root, if it has one: keys out of order, a wrong
// count, leaves at several levels. It is for tests.
func (root *Node) Check() error {
	c := check{leaves: -1}
	c.below(root, 0, Range{End: FromKey})
	if len(root.kids) == 1 {
		c.fail("a root of one kid")
	}
	return c.err
}

type check struct {
	leaves int // the level of all leaves; -1 before the first
	err    error
}

func (c *check) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// below checks n, whose keys must be in r, at a level of the tree; the root is at 0.
func (c *check) below(n *Node, level int, r Range) {
	live, size := 0, len(n.items)
	if n.kids == nil {
		live = c.leaf(n, level, r)
	} else {
		live, size = c.inner(n, level, r), len(n.kids)
	}
	if live != n.live {
		c.fail("a node of %d live keys counts %d", live, n.live)
	}
	if size >= maxItems || level > 0 && size == 0 {
		c.fail("a node of %d items or kids", size)
	}
}

func (c *check) leaf(n *Node, level int, r Range) (live int) {
	if c.leaves >= 0 && level != c.leaves {
		c.fail("leaves at levels %d and %d", c.leaves, level)
	}
	c.leaves = level
	for i, kv := range n.items {
		if i > 0 && kv.Key <= n.items[i-1].Key {
			c.fail("%q after %q", kv.Key, n.items[i-1].Key)
		}
		if !r.Contains(kv.Key) {
			c.fail("%q is not between the separators", kv.Key)
		}
		if kv.Live() {
			live++
		}
	}
	return live
}

func (c *check) inner(n *Node, level int, r Range) (live int) {
	if n.items != nil || len(n.kids) != len(n.seps)+1 {
		c.fail("an inner node of %d items, %d kids, %d separators", len(n.items), len(n.kids), len(n.seps))
		return n.live
	}
	for i, kid := range n.kids {
		live += kid.live
		of := r
		if i > 0 {
			of.Key = n.seps[i-1]
		}
		if i < len(n.seps) {
			of.End = n.seps[i]
		}
		c.below(kid, level+1, of)
	}
	return live
}
