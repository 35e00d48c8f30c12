package fsck

import (
	"fmt"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/record"
)

// history is which slots the check has applied, and what it knows of the states there.
type history struct {
	// spans are the runs of slots that were applied. Invariant: ascending, and none
	// overlaps another.
	spans []span
	// hashes are those of states, by slot: computed by applying slots, or of the
	// snapshot that a span starts from.
	hashes map[journal.Slot]Hash
	// late are the marks that name slots that were applied without being hashed, by
	// the slot that they name.
	late map[journal.Slot][]mark
}

// span is a run of slots that were applied one after the other.
type span struct {
	start journal.Slot // the state it starts from: 0, or a snapshot's slot
	end   journal.Slot // the last slot applied. Invariant: start <= end
}

func (s span) has(slot journal.Slot) bool { return s.start < slot && slot <= s.end }

// mark is a Snapshot record, with the slot that holds it.
type mark struct {
	at journal.Slot
	record.SnapshotMark
}

func newHistory() history {
	return history{hashes: map[journal.Slot]Hash{}, late: map[journal.Slot][]mark{}}
}

// begin begins a span, from the state at start.
func (h *history) begin(start journal.Slot) { h.spans = append(h.spans, span{start, start}) }

// applied notes that the next slot of the last span was applied.
func (h *history) applied(slot journal.Slot) { h.spans[len(h.spans)-1].end = slot }

// covers says whether a slot was applied.
func (h *history) covers(slot journal.Slot) bool {
	for _, s := range h.spans {
		if s.has(slot) {
			return true
		}
	}
	return false
}

// runs returns the spans in which slots were applied, as the report names them.
func (h *history) runs() []Run {
	out := []Run{}
	for _, s := range h.spans {
		if s.end > s.start {
			out = append(out, Run{First: s.start + 1, Last: s.end, FromSnapshot: s.start})
		}
	}
	return out
}

// judge holds a mark against the state at the slot that it names, now or once that slot
// has been applied again. checked is false if neither is possible.
func (h *history) judge(m mark) (f *Finding, checked bool) {
	hash, hashed := h.hashes[m.Slot]
	switch {
	case m.Slot >= m.at || m.Slot == 0:
		return &Finding{Severity: Warning, Code: OddMark, Slot: m.at,
			Message: fmt.Sprintf("names the state at slot %d, which does not lie before it", m.Slot)}, false
	case hashed:
		return m.compare(hash), true
	case !h.covers(m.Slot):
		return nil, false
	}
	h.late[m.Slot] = append(h.late[m.Slot], m)
	return nil, true
}

// compare returns a finding if the hash that was computed is not the one that the mark
// names, else nil.
func (m mark) compare(computed Hash) *Finding {
	if Hash(m.Hash) == computed {
		return nil
	}
	return &Finding{Severity: Error, Code: MarkDiffers, Slot: m.at,
		Message: fmt.Sprintf("says that the state at slot %d has the hash %s; here it comes out as %s", m.Slot, Hash(m.Hash).short(), computed.short())}
}

// lastLate returns the last slot of a span that late marks name; 0: none.
func (h *history) lastLate(s span) (last journal.Slot) {
	for slot := range h.late {
		if s.has(slot) {
			last = max(last, slot)
		}
	}
	return last
}

// takeLate returns the late marks that name a slot, once.
func (h *history) takeLate(slot journal.Slot) []mark {
	marks := h.late[slot]
	delete(h.late, slot)
	return marks
}
