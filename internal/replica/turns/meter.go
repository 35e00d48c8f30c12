package turns

import (
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// meter is what this writer measures by itself. Other writers measure other values, so
// nothing on which all writers must agree may follow from it.
type meter struct {
	rtt    time.Duration // round trip of an Append, as short as it was lately; 0: not known
	losses float64       // share of the batches that lost their slot, lately. Invariant: 0 <= losses <= 1
	streak int           // batches lost since the last one that won
	lostAt time.Time     // when this writer last learned that a batch was lost; zero: never
	rate   float64       // slots that are filled a second, lately; 0: not known
	tail   journal.Slot  // the last slot, as a Read found it
	seen   time.Time     // when the Read found it; zero: never
}

// weight is the share of a new observation in an average.
const weight = 0.2

func (m *meter) appended(took time.Duration, lost bool, now time.Time) {
	if m.rtt == 0 || took < m.rtt {
		m.rtt = took
	}
	if lost { // the driver may have asked twice, so took says little
		m.losses += weight * (1 - m.losses)
		m.streak++
		m.lostAt = now
		return
	}
	m.losses -= weight * m.losses
	m.streak = 0
	// An Append that took much longer was repeated, or met an outage. Its duration does
	// not say how far away the store is, so it counts as twice the round trip at most.
	m.rtt += (min(took, 2*m.rtt) - m.rtt) / 8
}

func (m *meter) sighted(tail journal.Slot, began, now time.Time) {
	if m.rtt == 0 {
		m.rtt = now.Sub(began)
	}
	at := began.Add(now.Sub(began) / 2)
	if since := at.Sub(m.seen); !m.seen.IsZero() {
		if since < m.rtt/4 {
			return
		}
		rate := float64(tail-min(tail, m.tail)) / since.Seconds()
		if m.rate == 0 { // a new writer learns from its first Read
			m.rate = rate
		}
		m.rate += weight * (rate - m.rate)
	}
	m.tail, m.seen = tail, at
}

// slotsWithin returns how many slots are filled in a duration.
func (m *meter) slotsWithin(d time.Duration) float64 { return m.rate * d.Seconds() }
