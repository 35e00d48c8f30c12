package survey

import (
	"crypto/rand"
	"encoding/hex"
)

// Each object that a run creates has a name that begins with NamePrefix, and the label
// RunLabel, whose value is the run's mark.
const (
	NamePrefix = "xb-conformance-"
	RunLabel   = "conformance.xbernetes.io/run"
)

// A Mark tells what one run makes from what others make.
type Mark string

// NewMark makes a mark that no other run has.
func NewMark() Mark {
	b := make([]byte, 5)
	rand.Read(b)
	return Mark(hex.EncodeToString(b))
}

// Name is that of an object of this run.
func (m Mark) Name(suffix string) string { return NamePrefix + string(m) + "-" + suffix }

// NoName is a name that no object has.
func (m Mark) NoName() string { return m.Name("none") }
