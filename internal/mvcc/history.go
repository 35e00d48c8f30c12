package mvcc

import (
	"slices"
	"sort"
	"strings"
	"sync/atomic"
)

// Change is a change of one key at one revision.
type Change struct {
	KV   *KV
	Prev *KV // the live version before it; nil if the change created the key
}

// history holds the changes that can still be read, and those that compaction has left to
// prune.
type history struct {
	compacted Revision // the oldest revision that can be read; 0: all
	// Ordered by revision, then key. Invariant: it has all changes at or above
	// compacted, and below that only changes that Prune has not reached.
	log []Change
	// The changes below the revision pruned that compaction took out of the log, and
	// that Prune has still to handle.
	toPrune []Change
	pruned  *atomic.Int64 // shared with views, see there. Invariant: at most compacted
}

func newHistory() history { return history{pruned: new(atomic.Int64)} }

// add logs a change. Changes of one revision may come in any order; end sorts them.
func (h *history) add(kv, prev *KV) {
	if !prev.Live() {
		prev = nil
	}
	h.log = append(h.log, Change{KV: kv, Prev: prev})
}

// end closes a revision whose changes are logged from index first on. It returns whether
// there are any.
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

// compact gives up the changes below rev, in a state at the revision now.
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

// cut moves the changes below the compacted revision from the log to those to be pruned.
func (h *history) cut() {
	n := sort.Search(len(h.log), func(i int) bool { return h.log[i].KV.Mod >= h.compacted })
	h.toPrune = h.log[:n:n]
	h.log = slices.Clone(h.log[n:])
}

// above returns the changes above rev.
func (h *history) above(rev Revision) []Change {
	return h.log[sort.Search(len(h.log), func(i int) bool { return h.log[i].KV.Mod > rev }):]
}
