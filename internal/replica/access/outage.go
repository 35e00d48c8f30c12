package access

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/xbernetes/xbernetes/internal/replica/stats"
)

// Outage says which journal does not answer, since when, and why.
type Outage struct {
	Journal string
	Since   time.Time
	Cause   error // why the last attempt failed; not wrapped, because it says nothing of the request
	// WritesOnly: the journal can be read, but takes no writes; for example, its disk is
	// full or a right is missing.
	WritesOnly bool
}

func (o *Outage) Error() string {
	what := "does not answer"
	if o.WritesOnly {
		what = "takes no writes"
	}
	return fmt.Sprintf("journal %s %s since %s: %v", o.Journal, what, o.Since.Format("15:04:05 MST"), o.Cause)
}

// failure is how the last attempt of a call failed.
type failure struct {
	cause    error
	readable bool // the journal was read after that attempt
}

// errSilent is the cause of an outage in which no attempt has failed yet.
var errSilent = errors.New("it has been silent for as long as a request waits")

// health is the state of the journal, as the calls under way show it. A journal that cannot
// be read counts as one that takes no writes either, because a write would wait for its
// outcome. A journal that takes no writes may still be read.
type health struct {
	journal string
	log     *slog.Logger

	began *stats.Count // counts the outages

	mu            sync.Mutex
	failing       map[*Call]failure // calls that fail for long; guarded by mu
	reads, writes Lane              // Invariant: they follow from failing
}

// Lane says whether the journal answers one kind of request.
type Lane struct {
	mu     *sync.Mutex   // the health's
	outage *Outage       // nil: none; guarded by mu
	began  chan struct{} // closed while there is an outage; guarded by mu
}

func (h *health) init(journal string, log *slog.Logger, began *stats.Count) {
	h.journal, h.log, h.began = journal, log, began
	h.failing = map[*Call]failure{}
	h.reads = Lane{mu: &h.mu, began: make(chan struct{})}
	h.writes = Lane{mu: &h.mu, began: make(chan struct{})}
}

// Reads says whether the journal can be read.
func (a *Access) Reads() *Lane { return &a.health.reads }

// Writes says whether the journal can be read and takes writes.
func (a *Access) Writes() *Lane { return &a.health.writes }

// State returns the outage, or nil, and a channel that is closed once there is an outage.
func (l *Lane) State() (*Outage, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.outage, l.began
}

// fails notes that a call fails for long.
func (h *health) fails(c *Call, f failure) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.ended { // the timer fired late
		return
	}
	h.failing[c] = f
	h.judge()
}

// over notes that a call has ended. It logs the end of an outage only if the journal
// answered.
func (h *health) over(c *Call, answered bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.ended = true
	if _, ok := h.failing[c]; !ok {
		return
	}
	delete(h.failing, c)
	was := h.writes.outage
	if h.judge(); answered && was != nil && h.writes.outage == nil {
		h.log.Info("journal answers again", "journal", h.journal, "after", time.Since(was.Since).Round(time.Millisecond))
	}
}

// judge derives the lanes from the calls that fail. The caller holds mu.
func (h *health) judge() {
	var reads, writes *Outage
	for c, f := range h.failing {
		o := &Outage{Journal: h.journal, Since: c.began, Cause: f.cause, WritesOnly: f.readable}
		writes = writes.with(o)
		if !c.op.needsWrites() {
			reads = reads.with(o)
		}
	}
	if h.writes.outage == nil && writes != nil {
		h.began.Add(1)
	}
	switch {
	case h.writes.outage != nil || writes == nil: // logged before, or no outage
	case writes.WritesOnly:
		h.log.Warn("journal takes no writes; trying on", "journal", h.journal, "since", writes.Since, "error", writes.Cause)
	default:
		h.log.Warn("journal does not answer; trying on", "journal", h.journal, "since", writes.Since, "error", writes.Cause)
	}
	h.reads.set(reads)
	h.writes.set(writes)
}

// with joins two outages: the earlier beginning, and the cause that says more.
func (o *Outage) with(p *Outage) *Outage {
	if o == nil {
		return p
	}
	both := *o
	both.WritesOnly = o.WritesOnly && p.WritesOnly
	if p.Since.Before(o.Since) {
		both.Since = p.Since
	}
	if errors.Is(o.Cause, errSilent) {
		both.Cause = p.Cause
	}
	return &both
}

func (l *Lane) set(o *Outage) {
	switch {
	case l.outage == nil && o != nil:
		close(l.began)
	case l.outage != nil && o == nil:
		l.began = make(chan struct{})
	}
	l.outage = o
}
