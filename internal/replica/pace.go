package replica

import (
	"slices"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// pace decides where batches are placed beside other writers. Writers that all
// aim at the slot after the tail lose to the nearest one, always. So once
// slots are being lost, each writer aims as far ahead as the others get within
// its own round trip, and there at a slot of its turn: the writers seen lately
// take turns in the order of their IDs. What is left empty below a record that
// landed is filled by whoever waits for it. All of it is a matter of speed:
// two who aim at one slot, or at none, are still safe.
type pace struct {
	me     mvcc.WriterID
	recent [64]mvcc.WriterID // of the slots last applied
	losses float64           // share of our batches that lost their slot, lately
	streak int               // batches lost since one won
	trip   time.Duration     // round trip of an Append, lately
	rate   float64           // slots that others take a second, lately

	foreign int       // slots of others applied since the rate was reckoned
	since   time.Time // when that was
	seen    time.Time // when what is known of the tail was true, at the latest
}

// crowded is the share of losses above which writers take turns.
const crowded = 0.2

// weight is what one more observation counts.
const weight = 0.2

// applied notes who holds a slot.
func (p *pace) applied(slot journal.Slot, by mvcc.WriterID) {
	p.recent[slot%journal.Slot(len(p.recent))] = by
	if by != p.me {
		p.foreign++
	}
}

// placed notes the end of a batch's way to its slot.
func (p *pace) placed(took time.Duration, lost bool) {
	loss := 0.0
	p.streak++
	if lost {
		loss = 1
	} else {
		p.streak = 0
	}
	p.losses += weight * (loss - p.losses)
	if p.trip == 0 {
		p.trip = took
	}
	p.trip += time.Duration(weight * float64(took-p.trip))
}

// fetched notes the end of a Read: what others wrote meanwhile is known, and if
// it found the tail, so is where that was.
func (p *pace) fetched(now time.Time, tail bool) {
	if tail {
		p.seen = now.Add(-p.trip / 2)
	}
	switch d := now.Sub(p.since); {
	case p.since.IsZero():
		p.foreign, p.since = 0, now
	case d >= p.trip:
		rate := float64(p.foreign) / d.Seconds()
		if p.rate == 0 { // a far writer sees little, and must learn from it
			p.rate = rate
		}
		p.rate += weight * (rate - p.rate)
		p.foreign, p.since = 0, now
	}
}

// aim is the slot to place a batch at; next is the first that may be empty.
func (p *pace) aim(next journal.Slot, now time.Time) journal.Slot {
	if p.losses < crowded {
		return next
	}
	turn, writers := p.turn()
	ahead := p.rate * (now.Sub(p.seen) + p.trip/2).Seconds()
	slot := next + journal.Slot(ahead) + journal.Slot(max(0, p.streak-2))
	for int(slot%journal.Slot(writers)) != turn {
		slot++
	}
	return slot
}

// turn is our place among the writers seen lately, and how many they are.
func (p *pace) turn() (turn, writers int) {
	ids := append(make([]mvcc.WriterID, 0, len(p.recent)+1), p.me)
	for _, id := range p.recent {
		if id != 0 {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	return slices.Index(ids, p.me), len(ids)
}
