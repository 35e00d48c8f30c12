package replica

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// hub holds the newest published state, and wakes the feeds that a change concerns. It
// holds no events: a feed that is woken reads them from the view's history. So a slow
// feed costs nothing and holds nobody up.
type hub struct {
	// view is the newest state, the same for readers and feeds: otherwise a read
	// could be answered from an older state than a watch has shown. Invariant: it
	// changes under mu only, and never to an older state.
	view   atomic.Pointer[mvcc.View]
	mu     sync.Mutex
	single map[string][]*Feed // feeds of one key each; guarded by mu
	ranges []rangeFeeds       // guarded by mu. Invariant: one entry for each distinct range
}

type rangeFeeds struct {
	r     mvcc.KeyRange
	feeds []*Feed
}

func (h *hub) init(v *mvcc.View) {
	h.view.Store(v)
	h.single = map[string][]*Feed{}
}

// publish makes v the view that everybody sees, and only then wakes the feeds that a
// change concerns. changes are all changes since the last view.
func (h *hub) publish(v *mvcc.View, changes []mvcc.Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.view.Store(v)
	for i := range changes {
		kv := changes[i].KV
		for _, f := range h.single[kv.Key] {
			f.note(kv.Mod)
		}
		for j := range h.ranges {
			if rf := &h.ranges[j]; rf.r.Contains(kv.Key) {
				for _, f := range rf.feeds {
					f.note(kv.Mod)
				}
			}
		}
	}
}

// Feed follows the changes in some ranges of keys, for one watch stream.
type Feed struct {
	hub  *hub
	wake chan struct{}
	// first and last are the revisions of the first and last change since the last
	// Take; 0: none. Guarded by hub.mu.
	first, last mvcc.Revision
}

// NewFeed returns a feed that follows no range yet. The caller must Remove every range
// that it adds.
func (r *Replica) NewFeed() *Feed {
	return &Feed{hub: &r.hub, wake: make(chan struct{}, 1)}
}

// note marks a change at a revision. The caller holds hub.mu.
func (f *Feed) note(rev mvcc.Revision) {
	if f.first == 0 {
		f.first = rev
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
	f.last = rev
}

// Wake receives when there is something to Take.
func (f *Feed) Wake() <-chan struct{} { return f.wake }

// Add makes the feed follow r, beginning with the view that the next Take returns. A
// range may be added several times, and must be removed as often.
func (f *Feed) Add(r mvcc.KeyRange) {
	h := f.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.Single() {
		h.single[r.Key] = append(h.single[r.Key], f)
		return
	}
	i := slices.IndexFunc(h.ranges, func(x rangeFeeds) bool { return x.r == r })
	if i < 0 {
		i = len(h.ranges)
		h.ranges = append(h.ranges, rangeFeeds{r: r})
	}
	h.ranges[i].feeds = append(h.ranges[i].feeds, f)
}

// Remove undoes one Add of r.
func (f *Feed) Remove(r mvcc.KeyRange) {
	h := f.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.Single() {
		if h.single[r.Key] = without(h.single[r.Key], f); len(h.single[r.Key]) == 0 {
			delete(h.single, r.Key)
		}
		return
	}
	i := slices.IndexFunc(h.ranges, func(x rangeFeeds) bool { return x.r == r })
	if i < 0 {
		return
	}
	if h.ranges[i].feeds = without(h.ranges[i].feeds, f); len(h.ranges[i].feeds) == 0 {
		h.ranges = slices.Delete(h.ranges, i, i+1)
	}
}

func without(feeds []*Feed, f *Feed) []*Feed {
	if i := slices.Index(feeds, f); i >= 0 {
		return slices.Delete(feeds, i, i+1)
	}
	return feeds
}

// Take returns the newest view, and the first and last revision of the changes in the
// feed's ranges since the last Take (0, 0 if there are none). Up to the view's revision
// those ranges have no other change, so a client that was sent these may be told of
// progress at that revision.
func (f *Feed) Take() (v *mvcc.View, first, last mvcc.Revision) {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	v, first, last = f.hub.view.Load(), f.first, f.last
	f.first, f.last = 0, 0
	return v, first, last
}
