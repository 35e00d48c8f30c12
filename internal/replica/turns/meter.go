package turns

import (
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// meter is what this writer measures by itself. Other writers measure otherwise, so
// that nothing which all must agree on may follow from it.
type meter struct {
	trip   time.Duration // round trip of an Append, as short as it was lately; 0: not known
	losses float64       // share of the batches that lost their slot, lately. Invariant: 0 <= losses <= 1
	streak int           // batches lost since the last one that won
	lostAt time.Time     // when a batch was last found to be lost; zero: never
	rate   float64       // slots that are filled a second, lately; 0: not known
	tail   journal.Slot  // the last slot, as a Read found it
	seen   time.Time     // when it found that; zero: never
}

// weight is what one more observation counts in an average.
const weight = 0.2

func (m *meter) appended(took time.Duration, lost bool, now time.Time) {
	if m.trip == 0 || took < m.trip {
		m.trip = took
	}
	if lost { // the driver may have asked twice, so that took says little
		m.losses += weight * (1 - m.losses)
		m.streak++
		m.lostAt = now
		return
	}
	m.losses -= weight * m.losses
	m.streak = 0
	// An Append that took much longer was repeated, or met an outage: that does not
	// say how far away the store is.
	m.trip += (min(took, 2*m.trip) - m.trip) / 8
}

func (m *meter) sighted(tail journal.Slot, began, now time.Time) {
	if m.trip == 0 {
		m.trip = now.Sub(began)
	}
	at := began.Add(now.Sub(began) / 2)
	if since := at.Sub(m.seen); !m.seen.IsZero() {
		if since < m.trip/4 {
			return
		}
		rate := float64(tail-min(tail, m.tail)) / since.Seconds()
		if m.rate == 0 { // a writer that is new must learn from its first look
			m.rate = rate
		}
		m.rate += weight * (rate - m.rate)
	}
	m.tail, m.seen = tail, at
}

// slotsWithin returns how many slots are filled in a duration.
func (m *meter) slotsWithin(d time.Duration) float64 { return m.rate * d.Seconds() }
