package roster

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// mostSaid is the greatest length of a fault in the log and in the lease.
const mostSaid = 500

// faults are why parts of a peer cannot be read, for people. The zero value has none.
type faults struct {
	mu     sync.Mutex
	byPart map[string]string // guarded by mu. Invariant: no value is empty
	said   string            // what first returned after the last set; guarded by mu
}

// set notes why a part cannot be read; "" if it can. It returns the fault to tell people,
// "" if there is none, and whether that is another one than before.
func (f *faults) set(part, why string) (fault string, changed bool) {
	if len(why) > mostSaid { // it may quote what the peer sent
		why = strings.ToValidUTF8(why[:mostSaid], "") + "…"
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byPart == nil {
		f.byPart = map[string]string{}
	}
	delete(f.byPart, part)
	if why != "" {
		f.byPart[part] = why
	}
	fault = ""
	if len(f.byPart) > 0 { // the same one for the same set
		fault = f.byPart[slices.Min(slices.Collect(maps.Keys(f.byPart)))]
	}
	changed = fault != f.said
	f.said = fault
	return fault, changed
}

// first returns the fault to tell people; "" if there is none.
func (f *faults) first() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.said
}
