package objectlog

import (
	"sync"

	"github.com/xbernetes/xbernetes/internal/journal"
)

const (
	// surely is how many slots are asked for at once, however long their records are: a
	// caller that is far away must not need several round trips to see what others
	// wrote in one.
	surely = 64
	// maxWindow is how many slots one Read asks for at once, and windowBytes
	// about how much they may hold.
	maxWindow   = 256
	windowBytes = 8 << 20
)

// pace says how many slots a Read asks for.
type pace struct {
	mu   sync.Mutex
	next journal.Slot // where the last Read ended
	size int          // what to ask for there
}

func (p *pace) window(from journal.Slot, limit int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := surely
	if from == p.next {
		n = max(n, p.size)
	}
	left := uint64(^journal.Slot(0) - from) // after from, up to the last slot that can be named
	return int(min(uint64(n), uint64(limit), max(left, 1)))
}

// got sets the next window: doubled if all n slots of this one were held,
// smaller if the records are large.
func (p *pace) got(from journal.Slot, n int, recs [][]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = from + journal.Slot(len(recs))
	p.size = surely
	if len(recs) < n {
		return
	}
	p.size = max(1, min(2*n, maxWindow, windowBytes/(sizeOf(recs)/n+1)))
}
