// Package route remembers which region was the home of a name, and which regions did not
// answer lately. It asks no region.
package route

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
)

const (
	most  = 65_536           // names that are remembered at once
	kept  = time.Hour        // for how long a home is remembered that nobody asks for
	fresh = 30 * time.Second // for how long a home is believed before a region is asked again
	pause = time.Second      // between two questions for a name whose home is doubted
	away  = 10 * time.Second // for how long a region that did not answer is asked last
)

// Key is a name, as one caller knows it. What one caller may see is never told to another,
// and so callers share nothing.
type Key struct {
	Caller [32]byte // a hash of the caller's credentials
	Kind   string
	Name   string
}

// home is what is known of a Key. A home never changes once it is stored.
type home struct {
	region  string
	asked   time.Time // when a region said so
	doubted bool
}

// Table is what is remembered. Safe for concurrent use. It holds at most 65,536 names; the
// name that was not asked for the longest is forgotten first.
type Table struct {
	homes *cache.LRUExpireCache // of home by Key

	mu   sync.Mutex
	gone map[string]time.Time // when a region did not answer last, by region; guarded by mu
}

// New returns an empty table.
func New() *Table {
	return &Table{homes: cache.NewLRUExpireCache(most), gone: map[string]time.Time{}}
}

// Home returns the region that was the home of a name, or "". It can be used if ok; otherwise
// a region must be asked again.
func (t *Table) Home(k Key) (region string, ok bool) {
	found, _ := t.homes.Get(k)
	h, _ := found.(home)
	age := time.Since(h.asked)
	return h.region, h.region != "" && age < fresh && (!h.doubted || age < pause)
}

// Learn remembers that a region has said where a name is.
func (t *Table) Learn(k Key, region string) {
	t.homes.Add(k, home{region: region, asked: time.Now()}, kept)
}

// Forget forgets a name.
func (t *Table) Forget(k Key) { t.homes.Remove(k) }

// Doubt has a region asked for the name again, because the region that was taken for its home
// does not know what is there. However often a home is doubted, it is asked for once a second.
func (t *Table) Doubt(k Key, region string) {
	found, _ := t.homes.Get(k)
	if h, _ := found.(home); h.region == region && !h.doubted {
		h.doubted = true
		t.homes.Add(k, h, kept)
	}
}

// Answered notes whether a region has answered.
func (t *Table) Answered(region string, did bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if did {
		delete(t.gone, region)
	} else {
		t.gone[region] = time.Now()
	}
}

// Order returns the regions in the order in which to ask them: first the one named so, then
// the others by name, and last those that did not answer lately.
func (t *Table) Order(regions []string, first string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	rank := func(region string) int {
		switch at, ok := t.gone[region]; {
		case ok && time.Since(at) < away:
			return 2
		case region == first:
			return 0
		}
		return 1
	}
	order := slices.Sorted(slices.Values(regions))
	slices.SortStableFunc(order, func(a, b string) int { return rank(a) - rank(b) })
	return order
}
