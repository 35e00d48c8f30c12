package mvcc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/xbernetes/xbernetes/internal/journal"
)

func putRequest(key, value string) Request {
	return Request{Kind: Txn, Then: []Op{{Kind: OpPut, Range: KeyRange{Key: key}, Value: []byte(value)}}}
}

// A writer is forgotten once nothing came of it for writerSpan slots, at the
// next multiple of writerSweep; so is what it sent. A restored state forgets
// at the same slot.
func TestForgetWriters(t *testing.T) {
	s := New()
	batch := func(w WriterID) *Batch {
		return &Batch{Writer: w, Number: 1, Requests: []Request{putRequest("a", "1")}}
	}
	s.Apply(1, batch(1), false)
	for s.Slot() < writerSweep-1 {
		s.Skip(s.Slot() + 1)
	}
	s.Apply(writerSweep, batch(2), false)
	const first = writerSpan + writerSweep // the first sweep to find writer 1 gone; it keeps 2
	for s.Slot() < first-1 {
		s.Skip(s.Slot() + 1)
	}
	if res := s.Apply(first, batch(3), false); res == nil {
		t.Fatal("a new writer's batch is void")
	}
	thawed := mustThaw(t, parts(t, s))
	for name, s := range map[string]*State{"the state": s, "its copy": thawed} {
		if s.writers[1] != nil || s.writers[2] == nil || s.writers[3] == nil {
			t.Errorf("%s remembers %d writers", name, len(s.writers))
		}
		if res := s.Apply(first+1, batch(1), false); res == nil {
			t.Errorf("%s: a forgotten writer's batch is void", name)
		}
		if res := s.Apply(first+2, batch(2), false); res != nil {
			t.Errorf("%s: a batch of a writer that is remembered happens twice", name)
		}
		for s.Slot() < first+2*writerSweep {
			s.Skip(s.Slot() + 1)
		}
		if s.writers[2] == nil {
			t.Errorf("%s: a void batch is no sign of life", name)
		}
	}
	sameParts(t, "the copy", parts(t, thawed), parts(t, s))
}

// Which of a writer's numbers are new, against a plain set of all of them.
func TestWriterWindow(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		g, s := newGen(seed), New()
		seen, last := map[BatchNumber]bool{}, BatchNumber(0)
		for slot := journal.Slot(1); slot <= 5000; slot++ {
			n := last + 1
			switch g.IntN(4) {
			case 0:
				n = last + BatchNumber(g.IntN(20))
			case 1:
				n = max(last, 300) - BatchNumber(g.IntN(300))
			}
			if g.one(500) {
				n += BatchNumber(g.IntN(600))
			}
			isNew := n > 0 && !seen[n] && n+BatchWindow > last
			if got := s.Apply(slot, &Batch{Writer: 1, Number: n}, true) != nil; got != isNew {
				t.Fatalf("slot %d: batch %d after %d new: %v, want %v", slot, n, last, got, isNew)
			}
			if isNew {
				seen[n], last = true, max(last, n)
			}
		}
	})
}

// Slots come in order, without gaps.
func TestApplyOutOfOrder(t *testing.T) {
	for _, slot := range []journal.Slot{0, 2} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("slot %d taken as the first", slot)
				}
			}()
			New().Skip(slot)
		}()
	}
}

// A state of some size has several parts, each of whole keys.
func TestParts(t *testing.T) {
	s := New()
	value := string(bytes.Repeat([]byte("v"), 1<<20))
	for i := range 11 {
		s.Apply(s.Slot()+1, &Batch{Writer: 1, Number: BatchNumber(i + 1), Requests: []Request{
			putRequest(fmt.Sprintf("%02d", i/2), value), putRequest("zero", ""),
		}}, false)
	}
	p := parts(t, s)
	if len(p) != 4 {
		t.Fatalf("%d parts", len(p))
	}
	for i, b := range p[1:] {
		if last := i == len(p)-2; !last && len(b) < PartSize {
			t.Errorf("part %d is of %d bytes", i+1, len(b))
		}
	}
	sameParts(t, "thawed", parts(t, mustThaw(t, p)), p)
	for _, order := range [][][]byte{{p[0], p[2], p[1], p[3]}, {p[0], p[1], p[3]}, {p[0], p[1], p[2]}} {
		if _, err := thaw(order); !errors.Is(err, ErrMalformed) {
			t.Errorf("parts that are missing or out of order: %v", err)
		}
	}
	calls, stop := 0, errors.New("stop")
	err := s.Freeze().Parts(func([]byte) error {
		if calls++; calls == 2 {
			return stop
		}
		return nil
	})
	if calls != 2 || !errors.Is(err, stop) {
		t.Errorf("%d calls, %v", calls, err)
	}
}

// A frozen state that was pruned since has no parts.
func TestPartsOfWhatWasPruned(t *testing.T) {
	s := New()
	s.Apply(1, &Batch{Writer: 1, Number: 1, Requests: []Request{putRequest("a", "1"), putRequest("a", "2")}}, false)
	f := s.Freeze()
	s.Apply(2, &Batch{Writer: 1, Number: 2, Requests: []Request{{Kind: Compact, Revision: 3}}}, false)
	if _, err := partsOf(f); err != nil {
		t.Errorf("compacted, but not pruned: %v", err)
	}
	s.Prune(10)
	if _, err := partsOf(f); !errors.Is(err, ErrCompacted) {
		t.Errorf("pruned: %v", err)
	}
	if _, err := partsOf(s.Freeze()); err != nil {
		t.Errorf("frozen anew: %v", err)
	}
}

// TestParseRequestsLimits: a batch at a limit is decoded, one beyond it is malformed.
func TestParseRequestsLimits(t *testing.T) {
	requests := make([]Request, MaxBatchRequests+1)
	for i := range requests {
		requests[i] = Request{Kind: Txn}
	}
	if _, err := ParseRequests(AppendRequests(nil, pointers(requests[1:]))); err != nil {
		t.Errorf("%d requests: %v", MaxBatchRequests, err)
	}
	if _, err := ParseRequests(AppendRequests(nil, pointers(requests))); !errors.Is(err, ErrMalformed) {
		t.Errorf("%d requests: %v", len(requests), err)
	}
	good := AppendRequests(nil, pointers(hostile))
	if _, err := ParseRequests(append(bytes.Clone(good), 0)); !errors.Is(err, ErrMalformed) {
		t.Errorf("a byte too many: %v", err)
	}
	for n := range good {
		if _, err := ParseRequests(good[:n]); !errors.Is(err, ErrMalformed) {
			t.Errorf("%d of %d bytes: %v", n, len(good), err)
		}
	}
}

// The second key of a request that equals the one before it costs a byte.
func TestWireKeyOnce(t *testing.T) {
	key := string(bytes.Repeat([]byte("k"), 200))
	r := putRequest(key, "v")
	r.Compares = []Compare{{Range: KeyRange{Key: key}, Target: TargetMod, Int: 5}}
	if n := len(AppendRequests(nil, []*Request{&r})); n > len(key)+20 {
		t.Errorf("%d bytes for a key of %d", n, len(key))
	}
}

// Decoding makes room in proportion to the input, whatever lengths it claims.
func TestParseMemory(t *testing.T) {
	filler := bytes.Repeat([]byte{0}, 1<<20)
	claim := func(prefix ...byte) []byte {
		b := binary.AppendUvarint(bytes.Clone(prefix), uint64(len(filler))-1)
		return append(b, filler...)
	}
	op := []byte{byte(OpDelete), 0, 1, 0}
	for name, b := range map[string][]byte{
		"requests": claim(),
		"compares": claim(1, byte(Txn)),
		"ops":      claim(1, byte(Txn), 0),
		"ops that are there": append(binary.AppendUvarint([]byte{1, byte(Txn), 0}, 1<<18),
			bytes.Repeat(op, 1<<18)...),
		"a value": claim(1, byte(Txn), 0, 1, byte(OpPut), 0, 1, 0),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := ParseRequests(b)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 64*uint64(len(b)) {
			t.Errorf("%s: %d bytes for an input of %d", name, used, len(b))
		}
	}
}

// Checking millions of operations against each other takes no quadratic time:
// were it so, this would not end.
func TestChangesTwiceIsQuick(t *testing.T) {
	const n = 1 << 18
	ops := make([]Op, 0, 2*n)
	for i := range n {
		ops = append(ops, Op{Kind: OpPut, Range: KeyRange{Key: fmt.Sprintf("p%08d", i)}}, Op{Kind: OpDelete, Range: KeyRange{Key: fmt.Sprintf("d%08d", i), End: "e"}})
	}
	if changesTwice(ops) {
		t.Error("no key is changed twice")
	}
	ops = append(ops, Op{Kind: OpDelete, Range: KeyRange{Key: "p00001000", End: "p00001001"}})
	if !changesTwice(ops) {
		t.Error("a key is put and deleted")
	}
}
