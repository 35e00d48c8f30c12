package mvcc

import (
	"slices"
	"sort"
	"strings"
	"sync/atomic"
)

// Change is one key changed at one revision.
type Change struct {
	KV   *KV
	Prev *KV // the live version before it; nil if the change created the key
}

// history is the changes that can still be read, and what compaction left to do.
type history struct {
	compacted Revision // the oldest revision that can be read; 0: all
	// Ordered by revision, then key. Invariant: all changes at or above compacted;
	// below it only those that Prune has not come to.
	log []Change
	// What compaction took out of the log, and prune has yet to look at: changes
	// below the revision pruned.
	toPrune []Change
	pruned  *atomic.Int64 // shared with views, see there. Invariant: at most compacted
}

func newHistory() history { return history{pruned: new(atomic.Int64)} }

// add logs a change, in whatever order within its revision: see end.
func (h *history) add(kv, prev *KV) {
	if !prev.Live() {
		prev = nil
	}
	h.log = append(h.log, Change{KV: kv, Prev: prev})
}

// end closes a revision whose changes are logged from index first on. It says
// whether there are any.
func (h *history) end(first int) bool {
	changes := h.log[first:]
	if len(changes) > 1 {
		sortChanges(changes)
	}
	return len(changes) > 0
}

// sortChanges orders the changes of one revision by key.
func sortChanges(c []Change) {
	slices.SortFunc(c, func(a, b Change) int { return strings.Compare(a.KV.Key, b.KV.Key) })
}

// compact gives up what is below rev, in a state at the revision now.
func (h *history) compact(rev, now Revision) error {
	switch {
	case rev <= h.compacted:
		return ErrCompacted
	case rev > now:
		return ErrFutureRevision
	}
	h.compacted = rev
	return nil
}

// due says whether compaction left something to prune.
func (h *history) due() bool { return len(h.toPrune) > 0 || h.pruned.Load() < int64(h.compacted) }

// next returns up to limit changes that are to be pruned, and forgets them.
func (h *history) next(limit int) []Change {
	if len(h.toPrune) == 0 && h.due() {
		h.pruned.Store(int64(h.compacted))
		h.cut()
	}
	n := min(limit, len(h.toPrune))
	out := h.toPrune[:n]
	if h.toPrune = h.toPrune[n:]; len(h.toPrune) == 0 {
		h.toPrune = nil
	}
	return out
}

// cut takes what is below the compacted revision out of the log, and sets it aside
// to be pruned.
func (h *history) cut() {
	n := sort.Search(len(h.log), func(i int) bool { return h.log[i].KV.Mod >= h.compacted })
	h.toPrune = h.log[:n:n]
	h.log = slices.Clone(h.log[n:])
}

// above returns the changes above rev.
func (h *history) above(rev Revision) []Change {
	return h.log[sort.Search(len(h.log), func(i int) bool { return h.log[i].KV.Mod > rev }):]
}
