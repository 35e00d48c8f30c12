package fsck

import (
	"context"
	"errors"

	"github.com/xbernetes/xbernetes/internal/journal"
)

const (
	// maxWindow is how many slots are asked for at once, and windowBytes about
	// how much they may hold.
	maxWindow   = 256
	windowBytes = 16 << 20
)

// reader reads a journal in windows that fit in memory.
type reader struct {
	store journal.Journal
	size  int // of the next window, in slots; 0: not known yet
}

// read returns records from slot on, at most limit if that is not 0, and none
// only at the tail. If one is corrupt, those before it come first.
func (r *reader) read(ctx context.Context, from journal.Slot, limit journal.Slot) ([][]byte, error) {
	n := max(r.size, 8)
	if limit > 0 {
		n = int(min(journal.Slot(n), limit))
	}
	recs, err := r.store.Read(ctx, from, n)
	if errors.Is(err, journal.ErrCorrupt) && n > 1 {
		recs, err = r.store.Read(ctx, from, 1)
	}
	if len(recs) > 0 {
		bytes := 0
		for _, rec := range recs {
			bytes += len(rec)
		}
		r.size = max(1, min(2*n, maxWindow, windowBytes/(bytes/len(recs)+1)))
	}
	return recs, err
}
