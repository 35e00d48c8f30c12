package sqllog

import (
	"sync"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// tail remembers which slots are known to be held or trimmed, so that the database need not
// be asked. It may know of fewer than there are. It is safe for concurrent use.
type tail struct {
	mu sync.Mutex
	// upTo and every slot below it are held or trimmed. It only grows.
	upTo journal.Slot
	// above are held slots above the first one that is not known to be.
	// Invariant: upTo+1 < each <= upTo+depth, because no append goes further ahead.
	above map[journal.Slot]bool
}

// covers says whether slot and all below it are known to be held or trimmed.
func (t *tail) covers(slot journal.Slot) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slot <= t.upTo
}

// raise notes that slot and all below it are held or trimmed.
func (t *tail) raise(slot journal.Slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slot > t.upTo {
		t.upTo = slot
		for known := range t.above {
			if known <= slot {
				delete(t.above, known)
			}
		}
	}
	t.join()
}

// note notes that slot is held.
func (t *tail) note(slot journal.Slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slot <= t.upTo {
		return
	}
	if t.above == nil {
		t.above = map[journal.Slot]bool{}
	}
	t.above[slot] = true
	t.join()
}

// join moves upTo past the slots that follow on it.
func (t *tail) join() {
	for t.above[t.upTo+1] {
		delete(t.above, t.upTo+1)
		t.upTo++
	}
}
