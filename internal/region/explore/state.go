package explore

import (
	"encoding/binary"
	"slices"
)

// state is what the regions store, and how far each client has come. It is never changed.
type state struct {
	objects objects
	clients []client
	late    []flight
	faults  int      // left
	results []result // of tasks that have ended, in this order
	memory  []int    // memorable bodies, in the order in which they were stored first

	parent *state // how it was reached, for the story of a violation
	step   step
	depth  int
}

// entry is one stored object: numbers of the catalog, and its version.
type entry struct{ key, version, body int }

// objects are sorted by key.
type objects []entry

// client is one client: the node says which answers it has got in this pass, and which
// calls it makes side by side now; nil: it has finished.
type client struct {
	task    int
	node    *node
	answers []int // to the calls of now, numbers of the catalog; 0: none yet
}

// flight is a write that its client has given up, and that may still land.
type flight struct {
	client  int
	request call
}

// result is what a task has come to.
type result struct{ client, task, text int }

func sameObjects(a, b objects) bool { return slices.Equal(a, b) }

func (o objects) find(key int) (entry, bool) {
	i, ok := o.index(key)
	if !ok {
		return entry{}, false
	}
	return o[i], true
}

func (o objects) index(key int) (int, bool) {
	return slices.BinarySearchFunc(o, key, func(x entry, k int) int { return x.key - k })
}

// with returns the objects with e in the place of whatever had its key.
func (o objects) with(e entry) objects {
	i, ok := o.index(e.key)
	if !ok {
		return slices.Insert(slices.Clone(o), i, e)
	}
	o = slices.Clone(o)
	o[i] = e
	return o
}

func (o objects) without(key int) objects {
	i, ok := o.index(key)
	if !ok {
		return o
	}
	return slices.Delete(slices.Clone(o), i, i+1)
}

// encode writes all that the future depends on.
func (s *state) encode() []byte {
	b := make([]byte, 0, 256)
	put := func(v ...int) {
		for _, n := range v {
			b = binary.AppendUvarint(b, uint64(n)) //nolint:gosec // none is negative
		}
	}
	put(len(s.objects))
	for _, o := range s.objects {
		put(o.key, o.version, o.body)
	}
	for _, c := range s.clients {
		if c.node == nil {
			put(0)
			continue
		}
		put(1+c.node.id, c.task, len(c.answers))
		put(c.answers...)
	}
	put(s.faults, len(s.results))
	for _, r := range s.results {
		put(r.client, r.task, r.text)
	}
	put(len(s.memory))
	put(s.memory...)
	for _, f := range s.late {
		put(f.request.key, f.request.body, f.request.version, len(f.request.Action))
	}
	return b
}

// unused returns the smallest version that the object does not have and that nobody
// remembers. Versions are only ever compared with each other, so that a version that
// nobody knows any more can be given again: this keeps the number of states finite.
func (s *state) unused(key int, c *catalog) int {
	var known uint64
	if o, ok := s.objects.find(key); ok {
		known |= 1 << o.version
	}
	for _, x := range s.clients {
		if x.node == nil {
			continue
		}
		for _, k := range x.node.known {
			if k.key == key {
				known |= k.versions
			}
		}
		for _, a := range x.answers {
			known |= c.answers[a].versionsOf(key)
		}
	}
	for _, f := range s.late {
		if f.request.key == key {
			known |= 1 << f.request.version
		}
	}
	for v := 1; v < 64; v++ {
		if known&(1<<v) == 0 {
			return v
		}
	}
	panic("explore: a client remembers more than 62 versions of one object")
}
