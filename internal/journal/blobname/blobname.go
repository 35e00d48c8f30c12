// Package blobname holds what every driver must do alike about the names of
// blobs: which are valid, and which of too many a listing returns. It never
// touches a store.
package blobname

import (
	"errors"
	"slices"
	"strings"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// errInvalid says what a name must be.
var errInvalid = errors.New("the name must have parts of [a-z0-9._-], not all dots, joined by /")

// Check returns an error unless name has the form that journal.Blobs asks for.
func Check(name string) error {
	for part := range strings.SplitSeq(name, "/") {
		if strings.Trim(part, "abcdefghijklmnopqrstuvwxyz0123456789._-") != "" || strings.Trim(part, ".") == "" {
			return errInvalid
		}
	}
	return nil
}

// List gathers what Blobs.ListBlobs returns, and holds at most twice
// journal.MaxListed names, however many it is given. The zero value is empty.
type List struct {
	names []string // those given that can still be among the last
	// cut is the last name that was given and is not among names any more; empty
	// if there is none. Invariant: it comes before every name that is returned.
	cut string
}

// Add gives the list one more name. Names may come in any order, each once.
func (l *List) Add(name string) {
	l.names = append(l.names, name)
	if len(l.names) == 2*journal.MaxListed {
		l.shorten()
	}
}

// Sorted returns the last names, at most journal.MaxListed, without those of a
// folder of which a name was left out. The list must not be used afterwards.
func (l *List) Sorted() []string {
	l.shorten()
	if folder := l.cut[:strings.LastIndex(l.cut, "/")+1]; folder != "" {
		n := 0
		for n < len(l.names) && strings.HasPrefix(l.names[n], folder) {
			n++
		}
		l.names = l.names[n:]
	}
	return l.names
}

// shorten sorts the names and leaves out all but the last.
func (l *List) shorten() {
	slices.Sort(l.names)
	if n := len(l.names) - journal.MaxListed; n > 0 {
		l.cut = max(l.cut, l.names[n-1])
		l.names = slices.Delete(l.names, 0, n)
	}
}
