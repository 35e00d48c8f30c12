package etcdapi

import (
	"slices"
	"sort"
	"strings"

	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// watcher is one watch of a stream. Only the stream's loop touches it.
type watcher struct {
	id    int64
	r     mvcc.KeyRange
	start mvcc.Revision // as asked; 0: from now on
	next  mvcc.Revision // the first revision that it has not been given

	prevKV, fragment, noPut, noDelete bool
	progress                          bool // wants to be told when nothing happens
	quiet                             bool // nothing was sent since the last tick
	behind                            bool // which set of the stream it is in

	batch []mvcc.Change // collected for the next response
}

// wants says whether a change of a key in its range is for this watcher.
func (w *watcher) wants(c *mvcc.Change) bool {
	if c.KV.Mod < w.next {
		return false
	}
	if c.KV.Live() {
		return !w.noPut
	}
	return !w.noDelete
}

// watchSet finds the watchers of a key, fast even among hundreds: a key costs one map look-up,
// and a walk over little more than the ranges that hold it.
type watchSet struct {
	size   int
	single map[string][]*watcher
	ranges []watchedRange // ordered by key, then end
	// reach has, for each of ranges, the furthest end among it and the ranges before it;
	// nil if ranges has changed since.
	reach []string
}

type watchedRange struct {
	r        mvcc.KeyRange
	watchers []*watcher
}

func compareRanges(x watchedRange, r mvcc.KeyRange) int {
	if c := strings.Compare(x.r.Key, r.Key); c != 0 {
		return c
	}
	return strings.Compare(x.r.End, r.End)
}

func (s *watchSet) add(w *watcher) {
	s.size++
	if w.r.Single() {
		if s.single == nil {
			s.single = map[string][]*watcher{}
		}
		s.single[w.r.Key] = append(s.single[w.r.Key], w)
		return
	}
	i, found := slices.BinarySearchFunc(s.ranges, w.r, compareRanges)
	if !found {
		s.ranges = slices.Insert(s.ranges, i, watchedRange{r: w.r})
		s.reach = nil
	}
	s.ranges[i].watchers = append(s.ranges[i].watchers, w)
}

func (s *watchSet) remove(w *watcher) {
	drop := func(watchers []*watcher) []*watcher {
		return slices.DeleteFunc(watchers, func(x *watcher) bool { return x == w })
	}
	s.size--
	if w.r.Single() {
		if s.single[w.r.Key] = drop(s.single[w.r.Key]); len(s.single[w.r.Key]) == 0 {
			delete(s.single, w.r.Key)
		}
		return
	}
	i, found := slices.BinarySearchFunc(s.ranges, w.r, compareRanges)
	if !found {
		return
	}
	if s.ranges[i].watchers = drop(s.ranges[i].watchers); len(s.ranges[i].watchers) == 0 {
		s.ranges = slices.Delete(s.ranges, i, i+1)
		s.reach = nil
	}
}

// each calls yield for every watcher, in no order. yield may not change the set.
func (s *watchSet) each(yield func(*watcher)) {
	for _, watchers := range s.single {
		for _, w := range watchers {
			yield(w)
		}
	}
	for i := range s.ranges {
		for _, w := range s.ranges[i].watchers {
			yield(w)
		}
	}
}

// all returns every watcher, in no order.
func (s *watchSet) all() []*watcher {
	all := make([]*watcher, 0, s.size)
	s.each(func(w *watcher) { all = append(all, w) })
	return all
}

// find calls yield for every watcher whose range holds key.
func (s *watchSet) find(key string, yield func(*watcher)) {
	for _, w := range s.single[key] {
		yield(w)
	}
	if len(s.ranges) == 0 {
		return
	}
	if s.reach == nil {
		s.measure()
	}
	// The ranges from i on begin past key. Below i, once a reach ends at or before
	// key, no earlier range can hold it.
	i := sort.Search(len(s.ranges), func(i int) bool { return s.ranges[i].r.Key > key })
	for i--; i >= 0 && (s.reach[i] == mvcc.FromKey || key < s.reach[i]); i-- {
		if s.ranges[i].r.Contains(key) {
			for _, w := range s.ranges[i].watchers {
				yield(w)
			}
		}
	}
}

func (s *watchSet) measure() {
	s.reach = make([]string, len(s.ranges))
	furthest := ""
	for i := range s.ranges {
		if end := s.ranges[i].r.End; furthest != mvcc.FromKey && (end == mvcc.FromKey || end > furthest) {
			furthest = end
		}
		s.reach[i] = furthest
	}
}
