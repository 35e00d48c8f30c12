package replica_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/replica"
)

// holed sends a replica past an empty slot, and then loses an answer.
type holed struct {
	journal.Store
	first, second atomic.Bool
}

func (h *holed) Append(ctx context.Context, slot journal.Slot, rec []byte) error {
	switch {
	case slot == 1 && !h.first.Swap(true):
		return journal.ErrTaken
	case slot == 2 && !h.second.Swap(true):
		return errors.New("answer lost")
	}
	return h.Store.Append(ctx, slot, rec)
}

// TestHoleBelow: the slot that a batch was sent to, with an unknown outcome,
// holds the record of a writer that is gone, above a slot that nobody fills.
// What holds it cannot be read before that one is filled, so the replica must
// not wait for it.
func TestHoleBelow(t *testing.T) {
	store := memlog.New(memlog.Options{Depth: 8})
	if err := store.Open().Append(t.Context(), 2, []byte("of a writer that is gone")); err != nil {
		t.Fatal(err)
	}
	r := run(t, &holed{Store: store.Open()}, func(c *replica.Config) { c.Timeout = 20 * time.Second })
	if res := propose(t, r, put("k", "v")); res.Err != nil || res.Revision != 2 {
		t.Fatalf("%+v, want revision 2", res)
	}
	if kv := r.View().Get("k"); kv == nil || kv.Version != 1 {
		t.Fatalf("%+v, want it written once", kv)
	}
}
