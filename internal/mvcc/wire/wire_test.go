package wire

import (
	"bytes"
	"math"
	"testing"
)

// TestRoundTrip: what a Writer wrote, a Reader reads.
func TestRoundTrip(t *testing.T) {
	var w Writer
	w.Uvarint(math.MaxUint64)
	w.Varint(math.MinInt64)
	w.Byte(7)
	w.Text("text")
	w.Bytes([]byte{1, 2})
	w.Uvarint(2)
	w.Byte('a')
	w.Byte('b')
	r := Reader{B: w.B}
	if n := r.Uvarint(); n != math.MaxUint64 {
		t.Errorf("Uvarint = %d", n)
	}
	if n := r.Varint(); n != math.MinInt64 {
		t.Errorf("Varint = %d", n)
	}
	if c := r.Enum(6, 7); c != 7 {
		t.Errorf("Enum = %d", c)
	}
	if s := r.Text(); s != "text" {
		t.Errorf("Text = %q", s)
	}
	if p := r.Bytes(); !bytes.Equal(p, []byte{1, 2}) {
		t.Errorf("Bytes = %v", p)
	}
	if n := r.Count(1, 2); n != 2 {
		t.Errorf("Count = %d", n)
	}
	if p := r.Take(2); string(p) != "ab" {
		t.Errorf("Take = %q", p)
	}
	if r.Failed || len(r.B) != 0 {
		t.Errorf("failed: %v, %d bytes are left", r.Failed, len(r.B))
	}
}

// TestFailure: bytes that are too few, or say too much, fail the Reader for good.
func TestFailure(t *testing.T) {
	for name, read := range map[string]func(r *Reader){
		"a number that does not end": func(r *Reader) { r.Uvarint() },
		"a string past the end":      func(r *Reader) { r.B = []byte{5, 'a'}; r.Text() },
		"more than is asked for":     func(r *Reader) { r.B = []byte{3, 0, 0, 0}; r.Count(1, 2) },
		"more than there is":         func(r *Reader) { r.B = []byte{3, 0, 0, 0}; r.Count(2, 9) },
		"a byte above":               func(r *Reader) { r.Enum(0, 1) },
	} {
		r := Reader{B: []byte{0xff}}
		read(&r)
		if !r.Failed || r.Uvarint() != 0 || r.Varint() != 0 || r.Byte() != 0 || r.Text() != "" || len(r.Bytes()) != 0 {
			t.Errorf("%s: the Reader goes on", name)
		}
	}
}

// FuzzReader: whatever the bytes, a Reader takes them from the front, and nothing
// once it has failed.
func FuzzReader(f *testing.F) {
	f.Add([]byte{1, 'a', 2, 0xff, 0xff, 1, 3}, []byte{0, 1, 2, 3, 4})
	f.Fuzz(func(t *testing.T, data, calls []byte) {
		r := Reader{B: bytes.Clone(data)}
		for _, call := range calls {
			before := len(r.B)
			switch call % 6 {
			case 0:
				r.Uvarint()
			case 1:
				r.Varint()
			case 2:
				r.Byte()
			case 3:
				r.Text()
			case 4:
				r.Bytes()
			case 5:
				r.Count(2, 1<<20)
			}
			if r.Failed && r.B != nil || !r.Failed && (len(r.B) >= before || !bytes.HasSuffix(data, r.B)) {
				t.Fatalf("call %d: failed %v, %d bytes left of %d", call%6, r.Failed, len(r.B), before)
			}
		}
	})
}
