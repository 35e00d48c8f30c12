package turns

import (
	"math"
	"time"
)

// saturated is how many batches in a row must follow each other without a pause
// before a writer asks for turns.
const saturated = 3

// Pace says whether a writer's batches follow each other without a pause. Only then
// does it ask for turns: a writer with fewer requests is better off with the next slot
// than with waiting for writers that have none. The zero value is ready for use.
type Pace struct {
	pressed  int       // batches in a row that came without a pause
	resolved time.Time // when a batch last had its outcome
	idle     bool      // the last batch was empty
}

// Resolved notes that a batch has its outcome.
func (p *Pace) Resolved(now time.Time) { p.resolved = now }

// Idle says whether the last batch was empty.
func (p *Pace) Idle() bool { return p.idle }

// Pressed says whether the last batches followed each other without a pause.
func (p *Pace) Pressed() bool { return p.pressed >= saturated }

// Launch notes that a batch is placed. empty says that it holds no request; otherwise its
// first request came at asked. unresolved says that other batches have no outcome yet; rtt
// is the writer's round trip. If the batch's record is to ask for turns, Launch returns the
// round trip in milliseconds, which the record then names; otherwise 0.
func (p *Pace) Launch(empty bool, asked time.Time, unresolved bool, rtt time.Duration) uint16 {
	if p.idle = empty; empty {
		return 0
	}
	if unresolved || asked.Sub(p.resolved) < rtt/2 {
		p.pressed++
	} else {
		p.pressed = 0
	}
	if !p.Pressed() || rtt == 0 {
		return 0
	}
	return uint16(min(max(rtt.Milliseconds(), 1), math.MaxUint16))
}
