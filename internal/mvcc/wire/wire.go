// Package wire encodes the numbers and strings of requests and snapshots: integers as varints
// (with zigzag if they have a sign), strings behind their length. It never knows what they
// mean.
package wire

import "encoding/binary"

// Writer appends to B.
type Writer struct {
	B []byte
}

// Uvarint appends n.
func (w *Writer) Uvarint(n uint64) { w.B = binary.AppendUvarint(w.B, n) }

// Varint appends n, which has a sign.
func (w *Writer) Varint(n int64) { w.B = binary.AppendVarint(w.B, n) }

// Byte appends c.
func (w *Writer) Byte(c byte) { w.B = append(w.B, c) }

// Text appends the length of s, and s.
func (w *Writer) Text(s string) { w.Uvarint(uint64(len(s))); w.B = append(w.B, s...) }

// Bytes appends the length of p, and p.
func (w *Writer) Bytes(p []byte) { w.Uvarint(uint64(len(p))); w.B = append(w.B, p...) }

// Reader decodes B, and removes from it what it has read. After a failure every read returns
// zeros.
type Reader struct {
	B      []byte // Invariant: nil once Failed is set
	Failed bool
}

// Fail notes that the bytes are malformed.
func (r *Reader) Fail() {
	r.Failed = true
	r.B = nil
}

// Uvarint reads what Writer.Uvarint wrote, or a longer form of it.
func (r *Reader) Uvarint() uint64 {
	n, size := binary.Uvarint(r.B)
	if size <= 0 {
		r.Fail()
		return 0
	}
	r.B = r.B[size:]
	return n
}

// Varint reads what Writer.Varint wrote, or a longer form of it.
func (r *Reader) Varint() int64 {
	n, size := binary.Varint(r.B)
	if size <= 0 {
		r.Fail()
		return 0
	}
	r.B = r.B[size:]
	return n
}

// Byte reads one byte.
func (r *Reader) Byte() byte {
	if len(r.B) == 0 {
		r.Fail()
		return 0
	}
	c := r.B[0]
	r.B = r.B[1:]
	return c
}

// Enum reads a byte that must be within [lo, hi].
func (r *Reader) Enum(lo, hi byte) byte {
	c := r.Byte()
	if c < lo || c > hi {
		r.Fail()
	}
	return c
}

// Take returns the next n bytes, which share memory with the input.
func (r *Reader) Take(n uint64) []byte {
	if n > uint64(len(r.B)) {
		r.Fail()
		return nil
	}
	p := r.B[:n:n]
	r.B = r.B[n:]
	return p
}

// Text reads what Writer.Text wrote. It shares no memory with the input.
func (r *Reader) Text() string { return string(r.Take(r.Uvarint())) }

// Bytes reads what Writer.Bytes wrote. They share no memory with the input.
func (r *Reader) Bytes() []byte { return append([]byte(nil), r.Take(r.Uvarint())...) }

// Count reads how many items follow, of at least size bytes each. It fails if they are more
// than most, or more than the bytes that are left can hold.
func (r *Reader) Count(size, most int) int {
	n := r.Uvarint()
	if n > uint64(min(len(r.B)/size, most)) {
		r.Fail()
		return 0
	}
	return int(n)
}
