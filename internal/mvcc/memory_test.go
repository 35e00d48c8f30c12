package mvcc

import (
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// allocated is how many bytes f asks the heap for. Nothing else may run.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// repeat is n times the same bytes.
func repeat(n int, unit ...byte) (out []byte) {
	for range n {
		out = append(out, unit...)
	}
	return out
}

// TestParseRequestsHoldsLittle: what little bytes claim to be must not take
// more memory than the largest batch that a replica writes.
func TestParseRequestsHoldsLittle(t *testing.T) {
	count := func(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }
	txn := func(parts ...[]byte) []byte {
		b := []byte{1, byte(Txn)}
		for _, p := range parts {
			b = append(b, p...)
		}
		return b
	}
	const n = 15 << 20 / 4
	none := []byte{0}
	for name, body := range map[string][]byte{
		"operations": txn(none, count(n), repeat(n, byte(OpRange), 0, 0, 0), none),
		"compares":   txn(count(n), repeat(n, 0, 0, 0, 0, 0), none, none),
		"requests":   append(count(MaxBatchRequests), repeat(MaxBatchRequests, byte(Txn), 0, 0, 0)...),
		"empty puts": txn(none, count(n), repeat(n, byte(OpPut), 0, 0, 0, 0, 0), none),
	} {
		var err error
		if got := allocated(func() { _, err = ParseRequests(body) }); got > 3*MaxBatchWeight {
			t.Errorf("%s: %d bytes took %d bytes of memory (%v)", name, len(body), got, err)
		}
	}
}

// TestParseFirstPartHoldsLittle is the same for the first part of a snapshot.
func TestParseFirstPartHoldsLittle(t *testing.T) {
	const n = 8 << 20
	start := append([]byte{1, 2, 0}, binary.AppendUvarint(nil, n)...)
	for name, part := range map[string][]byte{
		"leases":  append(start, repeat(n, 2, 2, 0)...),
		"writers": append([]byte{1, 2, 0, 0}, append(binary.AppendUvarint(nil, n), repeat(n, 1, 0, 0, 0, 0, 0, 0)...)...),
	} {
		var err error
		if got := allocated(func() { _, err = Thaw(part, nil) }); got > 1<<20 {
			t.Errorf("%s: %d bytes took %d bytes of memory (%v)", name, len(part), got, err)
		}
		if !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPartsAreBounded: one key that was written often fills several parts, each
// of which has a bound, and comes back from them.
func TestPartsAreBounded(t *testing.T) {
	s, slot := New(), journal.Slot(0)
	apply := func(op Op) {
		slot++
		s.Apply(slot, &Batch{Writer: 1, Number: BatchNumber(slot), Requests: []Request{{Kind: Txn, Then: []Op{op}}}}, false)
	}
	long := string(repeat(1<<20, 'k'))
	for i := range 12 {
		apply(Op{Kind: OpPut, Range: KeyRange{Key: "hot"}, Value: repeat(1<<20+i*1000, 'v')})
		apply(Op{Kind: OpPut, Range: KeyRange{Key: long}, Value: repeat(MaxBatchWeight-opWeight-1<<20, 'v')})
		if i%3 == 2 {
			apply(Op{Kind: OpDelete, Range: KeyRange{Key: "hot"}})
		}
	}
	want := parts(t, s)
	if len(want) < 8 || uint64(len(want)) > MaxParts(slot) {
		t.Errorf("%d parts at slot %d; want 8 to %d", len(want), slot, MaxParts(slot))
	}
	for i, p := range want[1:] {
		if len(p) > MaxPart || len(p) < PartSize && i < len(want)-2 {
			t.Errorf("part %d of %d has %d bytes", i+1, len(want)-1, len(p))
		}
	}
	sameParts(t, "thawed", parts(t, mustThaw(t, want)), want)
	for i := 1; i < len(want); i++ {
		without := append(slices.Clone(want[:i]), want[i+1:]...)
		if _, err := thaw(without); !errors.Is(err, ErrMalformed) {
			t.Errorf("without part %d: %v", i, err)
		}
	}
	if _, err := ParsePart(make([]byte, MaxPart+1)); !errors.Is(err, ErrMalformed) {
		t.Errorf("a longer part: %v", err)
	}
}

// TestMaxLeases: there is a bound to leases, and with the longest numbers that
// can be in them, that many fit in the first part.
func TestMaxLeases(t *testing.T) {
	if testing.Short() {
		t.Skip("it grants a million leases")
	}
	s := New()
	for id := range LeaseID(MaxLeases) {
		if err := s.leases.grant(math.MinInt64+id, MaxLeaseTTL, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.leases.grant(1, 60, 0); !errors.Is(err, ErrTooManyLeases) {
		t.Errorf("one more: %v", err)
	}
	for id := range WriterID(maxWriters) {
		w := &writer{last: math.MaxUint64, max: math.MaxUint64}
		for i := range w.seen {
			w.seen[i] = math.MaxUint64
		}
		s.writers[math.MaxUint64-id] = w
	}
	s.slot, s.rev, s.history.compacted = math.MaxUint64, math.MaxInt64, math.MaxInt64
	if first := s.Freeze().firstPart(); len(first) > MaxFirstPart {
		t.Errorf("the first part has %d bytes, at most %d", len(first), MaxFirstPart)
	}
}
