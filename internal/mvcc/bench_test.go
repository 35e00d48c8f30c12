package mvcc

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
)

const benchKeys = 100_000

func benchKey(i int) string {
	return fmt.Sprintf("/registry/pods/namespace-%03d/pod-%06d", i%100, i)
}

// benchState holds benchKeys keys of size bytes each.
func benchState(size int) *State {
	s := New()
	value := bytes.Repeat([]byte("v"), size)
	b := &Batch{Writer: 1}
	for i := range benchKeys {
		b.Requests = append(b.Requests, Request{Kind: Txn, Then: []Op{{Kind: OpPut, Range: KeyRange{Key: benchKey(i)}, Value: value}}})
		if len(b.Requests) == 1000 {
			b.Number++
			s.Apply(s.Slot()+1, b, false)
			b.Requests = b.Requests[:0]
		}
	}
	return s
}

// BenchmarkPut is a put on one of so many existing keys among benchKeys, as the
// replica does it: applied, then a view taken, in batches of so many. Every so
// often it compacts, as an API server asks for.
func BenchmarkPut(b *testing.B) {
	for _, size := range []int{1, 16, 128} {
		for _, keys := range []int{1, benchKeys} {
			b.Run(fmt.Sprintf("batch=%d/keys=%d", size, keys), func(b *testing.B) { benchPut(b, size, keys) })
		}
	}
}

func benchPut(b *testing.B, size, keys int) {
	s := benchState(256)
	value := bytes.Repeat([]byte("v"), 256)
	in := &Batch{Writer: 1, Number: 1 << 32, Requests: make([]Request, size)}
	for i := range in.Requests {
		in.Requests[i] = Request{Kind: Txn, Then: []Op{{Kind: OpPut, Value: value}}}
	}
	at := 0
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += size {
		for i := range in.Requests {
			at = (at + 7919) % keys
			in.Requests[i].Then[0].Range.Key = benchKeyOf[at]
		}
		in.Number++
		if res := s.Apply(s.Slot()+1, in, true); res[0].Err != nil {
			b.Fatal(res[0].Err)
		}
		s.View()
		if n%(1<<18) < size && s.rev > 1<<18 {
			if err := s.history.compact(s.rev-1<<17, s.rev); err != nil {
				b.Fatal(err)
			}
		}
		s.Prune(2 * size)
	}
}

// benchKeyOf spares the benchmarks from making keys.
var benchKeyOf = func() (keys [benchKeys]string) {
	for i := range keys {
		keys[i] = benchKey(i)
	}
	return keys
}()

func BenchmarkView(b *testing.B) {
	s := benchState(0)
	b.ReportAllocs()
	for b.Loop() {
		s.View()
	}
}

func BenchmarkRead(b *testing.B) {
	v := benchState(256).View()
	for name, q := range map[string]struct {
		r KeyRange
		o ReadOptions
	}{
		"one":          {KeyRange{Key: benchKey(4711)}, ReadOptions{Limit: 1}},
		"count 100000": {KeyRange{Key: "/registry/pods/", End: "/registry/pods0"}, ReadOptions{CountOnly: true}},
		"page of 500":  {KeyRange{Key: "/registry/pods/", End: "/registry/pods0"}, ReadOptions{Limit: 500}},
		"all 100000":   {KeyRange{Key: "/registry/pods/", End: "/registry/pods0"}, ReadOptions{}},
		"all before":   {KeyRange{Key: "/registry/pods/", End: "/registry/pods0"}, ReadOptions{Revision: v.rev - 1}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if res, err := v.Read(q.r, q.o); err != nil || res.Count == 0 {
					b.Fatal(res, err)
				}
			}
		})
	}
}

func BenchmarkParts(b *testing.B) {
	f := benchState(1024).Freeze()
	b.ReportAllocs()
	for b.Loop() {
		if err := f.Parts(func(p []byte) error { b.SetBytes(int64(len(p))); return nil }); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkThaw is 100,000 keys of 1 KB, on one core.
func BenchmarkThaw(b *testing.B) {
	p := parts(b, benchState(1024))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := thaw(p); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWire is the wire form of a batch of 128 puts of 256 bytes.
func BenchmarkWire(b *testing.B) {
	var requests []Request
	for i := range 128 {
		requests = append(requests, Request{
			Kind:     Txn,
			Compares: []Compare{{Range: KeyRange{Key: benchKey(i)}, Target: TargetMod, Int: int64(i)}},
			Then:     []Op{{Kind: OpPut, Range: KeyRange{Key: benchKey(i)}, Value: make([]byte, 256)}},
		})
	}
	encoded := AppendRequests(nil, pointers(requests))
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		var dst []byte
		for b.Loop() {
			dst = AppendRequests(dst[:0], pointers(requests))
		}
	})
	b.Run("parse", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := ParseRequests(encoded); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkMemory is what a million keys with 1 KiB each take on the heap, beside the values
// themselves. With -memprofile it says what takes it.
func BenchmarkMemory(b *testing.B) {
	const n, size = 1_000_000, 1 << 10
	text := make([]byte, size)
	for range b.N {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		s, batch := New(), &Batch{Writer: 1}
		for i := range n {
			batch.Requests = append(batch.Requests, Request{Kind: Txn, Then: []Op{{Kind: OpPut, Range: KeyRange{Key: benchKey(i)}, Value: bytes.Clone(text)}}})
			if len(batch.Requests) == 1000 {
				batch.Number++
				s.Apply(s.Slot()+1, batch, false)
				batch.Requests = nil
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "B/key")
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n-size, "overhead-B/key")
		runtime.KeepAlive(s)
	}
}
