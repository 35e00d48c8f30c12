// Package stats counts what a replica does, in memory of a fixed size. It never decides
// anything, and knows no way to publish what it counted.
package stats

import (
	"math"
	"sort"
	"sync/atomic"
	"time"
)

// Count is a number that only grows.
type Count = atomic.Uint64

// Replica is what one replica has done since it was made. The replica counts, and
// anybody may read.
type Replica struct {
	Calls     Calls
	Requests  Requests
	Batches   Batches
	Void      Void
	Snapshots Snapshots
	Trim      Trim

	// ReadsAsked are the linearizable reads that asked the journal, alone or together.
	ReadsAsked Count
	// Expiries are the ends of leases that this replica proposed.
	Expiries Count

	Known  Count // the last slot that is known to be held, or on its way there
	TailAt Time  // when the last Read that found the tail began
	Floor  Count // the first slot that floor records do not give up; 0: none was seen
}

// Requests are those that were proposed, by the outcome that their callers were told.
type Requests struct {
	Applied, Busy, Unavailable, Unknown Count
	Refused                             Count // too large, or proposed when the replica had ended
}

// Batches are those of this writer.
type Batches struct {
	Requests *Histogram // in each batch when it was first launched
	Bytes    *Histogram // of its record
	// Again are the batches that were launched again, because another record held their
	// slot or because they were void.
	Again Count
}

// Void are the records of any writer that changed nothing, by why.
type Void struct{ Foreign, Malformed, Undecodable Count }

// Trim counts deletions of old records by this replica.
type Trim struct {
	Deleted Count // records
	Failed  Count // deletions of several records at once that failed, in part or whole
}

// Calls are attempts to reach the journal.
type Calls struct {
	// Appends, by the outcome of each attempt. Unknown are the attempts that may have
	// landed or may land later.
	Stored, Taken, Ahead, Refused, Unknown Count
	// Reads that were answered, and Reads that were not.
	Answered, Failed Count

	AppendTime, ReadTime *Histogram // microseconds of each attempt

	// Outages that began, of the whole journal or of its writes alone.
	Outages Count
}

// Snapshots counts the snapshots that this replica took.
type Snapshots struct {
	Stored, Failed Count
	Hashed         Count // computed to compare them with another replica's
	Bytes          Count // stored, compressed
	Time           *Histogram
}

// The upper bounds of the histograms: microseconds, requests, bytes.
var (
	callTimes     = []uint64{250, 500, 1e3, 2500, 5e3, 1e4, 25e3, 5e4, 1e5, 25e4, 5e5, 1e6, 25e5, 5e6, 1e7}
	snapshotTimes = []uint64{1e4, 1e5, 1e6, 5e6, 15e6, 6e7, 3e8}
	requests      = []uint64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096}
	bytes         = []uint64{256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}
)

// New returns the counts of a replica that has done nothing.
func New() *Replica {
	s := &Replica{Batches: Batches{Requests: newHistogram(requests), Bytes: newHistogram(bytes)}}
	s.Calls.AppendTime, s.Calls.ReadTime = newHistogram(callTimes), newHistogram(callTimes)
	s.Snapshots.Time = newHistogram(snapshotTimes)
	return s
}

// Time is a moment, or none.
type Time struct{ nanos atomic.Int64 }

// Set sets the moment.
func (t *Time) Set(at time.Time) { t.nanos.Store(at.UnixNano()) }

// Get returns the moment; ok is false if there is none.
func (t *Time) Get() (at time.Time, ok bool) {
	n := t.nanos.Load()
	return time.Unix(0, n), n != 0
}

// Histogram counts values by the first bound that they do not exceed. Its memory does
// not grow, and its methods are safe for concurrent use.
type Histogram struct {
	bounds  []uint64 // Invariant: ascending; never changes
	buckets []Count  // one for each bound, and one for all that is above
	sum     Count
}

func newHistogram(bounds []uint64) *Histogram {
	return &Histogram{bounds: bounds, buckets: make([]Count, len(bounds)+1)}
}

// Observe counts a value.
func (h *Histogram) Observe(v uint64) {
	h.buckets[sort.Search(len(h.bounds), func(i int) bool { return v <= h.bounds[i] })].Add(1)
	h.sum.Add(v)
}

// Since observes the microseconds that have passed since a moment.
func (h *Histogram) Since(began time.Time) {
	h.Observe(uint64(max(0, time.Since(began).Microseconds())))
}

// Read returns how many values there were, their sum, and how many did not exceed each
// bound, all in the units given to Observe times scale.
func (h *Histogram) Read(scale float64) (count uint64, sum float64, upTo map[float64]uint64) {
	upTo = make(map[float64]uint64, len(h.bounds))
	for i, bound := range h.bounds {
		count += h.buckets[i].Load()
		upTo[math.Round(float64(bound)*scale*1e6)/1e6] = count
	}
	return count + h.buckets[len(h.bounds)].Load(), float64(h.sum.Load()) * scale, upTo
}
