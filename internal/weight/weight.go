// Package weight says what a JSON text takes in memory once it is decoded,
// before anybody decodes it: a text of "{}," may take a hundred times its length.
// It never decides whether a text is JSON.
package weight

import (
	"errors"
	"io"
)

// The most that decoded values take, in bytes: an object becomes a struct of
// Kubernetes' or a map, anything else a slice, a string, a number or a pointer.
// A value is counted at what comes before it, and the bytes of the text count as
// well, since strings hold them.
const (
	object = 512
	other  = 64
)

// ErrTooHeavy says that a JSON text has more in it than may be held.
var ErrTooHeavy = errors.New("it has more values in it than the gateway takes of one server")

// scale weighs JSON as it passes.
type scale struct {
	inString, escaped bool
	depth             int
	total             int64 // of all that has passed
	value             int64 // of the value at the top level that is under way
}

func (s *scale) pass(p []byte) {
	for _, c := range p {
		s.value++
		switch {
		case s.escaped:
			s.escaped = false
		case s.inString:
			s.escaped = c == '\\'
			s.inString = c != '"'
		case c == '"':
			s.inString = true
		case c == '{':
			s.value += object
			s.depth++
		case c == '[':
			s.value += other
			s.depth++
		case c == ',', c == ':':
			s.value += other
		case c == '}', c == ']':
			if s.depth--; s.depth <= 0 {
				s.total += s.value
				s.value, s.depth = 0, 0
			}
		}
	}
}

// Of is the weight of a JSON text. If the text is not JSON, the weight says
// nothing, and a decoder refuses it before it holds anything.
func Of(json []byte) int64 {
	var s scale
	s.pass(json)
	return s.total + s.value
}

// NewReader reads JSON from r, one value or a stream of them, and fails with
// ErrTooHeavy before it returns the part of a value that weighs more than most.
func NewReader(r io.Reader, most int64) io.Reader { return &reader{from: r, most: most} }

type reader struct {
	from  io.Reader
	most  int64
	scale scale
}

func (r *reader) Read(p []byte) (int, error) {
	if r.scale.value > r.most {
		return 0, ErrTooHeavy
	}
	n, err := r.from.Read(p)
	if r.scale.pass(p[:n]); r.scale.value > r.most {
		return 0, ErrTooHeavy
	}
	return n, err
}

// Budget is what may be decoded of several texts together. It is for one
// goroutine.
type Budget struct{ Left int64 }

// Spend takes a text's weight off the budget; it fails with ErrTooHeavy if it
// is not there.
func (b *Budget) Spend(json []byte) error {
	if b.Left -= Of(json); b.Left < 0 {
		return ErrTooHeavy
	}
	return nil
}
