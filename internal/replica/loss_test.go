package replica_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/record"
	"github.com/xbernetes/xbernetes/internal/replica"
)

// ends starts a replica on store, and returns what it ends with. It asks for
// writes meanwhile, as clients do.
func ends(t *testing.T, store journal.Store) error {
	t.Helper()
	r := replica.New(replica.Config{
		Store: store, Notifier: notify.NewPolling(time.Millisecond, time.Millisecond),
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			if _, err := r.Propose(ctx, put("k", "v")); errors.Is(err, replica.ErrStopped) {
				return
			}
		}
	}()
	return r.Run(ctx)
}

// forgetful is a journal that lost the record of one slot.
type forgetful struct {
	journal.Store
	slot journal.Slot

	mu      sync.Mutex
	refills int // Appends to the slot
}

func (f *forgetful) Read(ctx context.Context, from journal.Slot, limit int) ([][]byte, error) {
	switch {
	case from == f.slot:
		return nil, nil
	case from < f.slot:
		return f.Store.Read(ctx, from, min(limit, int(f.slot-from)))
	}
	return f.Store.Read(ctx, from, limit)
}

func (f *forgetful) Peek(ctx context.Context, slot journal.Slot) ([]byte, error) {
	if slot == f.slot {
		return nil, nil
	}
	return f.Store.Peek(ctx, slot)
}

func (f *forgetful) Append(ctx context.Context, slot journal.Slot, rec []byte) error {
	if slot == f.slot {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.refills++
		return nil
	}
	return f.Store.Append(ctx, slot, rec)
}

// TestLostRecord: a slot is not filled if the records above it prove that it was held,
// wherever it is within reach of the tail.
func TestLostRecord(t *testing.T) {
	store := memlog.New(memlog.Options{Depth: 64})
	r, stop := start(t, store.Open(), nil)
	const last = 60
	for i := range last {
		propose(t, r, put("k", fmt.Sprint(i)))
	}
	stop()
	for slot := journal.Slot(1); slot < last; slot++ {
		lossy := &forgetful{Store: store.Open(), slot: slot}
		if err := ends(t, lossy); !errors.Is(err, replica.ErrLost) || lossy.refills != 0 {
			t.Errorf("without slot %d of %d the replica ended with %v, and filled it %d times; want ErrLost, and never", slot, last, err, lossy.refills)
		}
	}
}

// heldOnce is a journal that loses the record of one slot after it has refused an Append
// to it.
type heldOnce struct {
	forgetful
	refused bool
}

func (h *heldOnce) Append(ctx context.Context, slot journal.Slot, rec []byte) error {
	h.mu.Lock()
	first := slot == h.slot && !h.refused
	h.refused = h.refused || first
	h.mu.Unlock()
	if first {
		return journal.ErrTaken
	}
	return h.forgetful.Append(ctx, slot, rec)
}

// TestRecordLostWhileFollowing: a server that follows the journal does not fill a slot
// that lost its record either, if the records above it prove that it was held.
func TestRecordLostWhileFollowing(t *testing.T) {
	store := memlog.New(memlog.Options{Depth: 64})
	writer, stopWriter := start(t, store.Open(), nil)
	propose(t, writer, put("k", "first"))
	const lost = 10
	lossy := &heldOnce{forgetful: forgetful{Store: store.Open(), slot: lost}}
	follower := replica.New(replica.Config{
		Store: lossy, Notifier: notify.NewPolling(time.Millisecond, time.Millisecond),
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	ended := make(chan error, 1)
	go func() { ended <- follower.Run(t.Context()) }()
	<-follower.Ready() // from here on it follows
	for i := range 2 * lost {
		propose(t, writer, put("k", fmt.Sprint(i)))
	}
	stopWriter()
	_, _ = follower.Propose(t.Context(), put("k", "own")) // it has no outcome
	if err := <-ended; !errors.Is(err, replica.ErrLost) || lossy.refills != 0 {
		t.Errorf("the replica ended with %v, and filled the slot %d times; want ErrLost, and never", err, lossy.refills)
	}
}

// TestForeignRecordsAboveAHole: only a record of this journal that is anchored
// past an empty slot says that it had been held.
func TestForeignRecordsAboveAHole(t *testing.T) {
	for name, rec := range map[string]func(id journal.ID) []byte{
		"of a writer that had not seen it": func(id journal.ID) []byte {
			return record.Append(nil, &record.Header{Journal: id, Writer: 9, Kind: record.Batch, AnchorChain: record.NewChains(id).Last()}, []byte{0}, false)
		},
		"of another journal": func(journal.ID) []byte {
			return record.Append(nil, &record.Header{Journal: journal.ID{9}, Writer: 9, Anchor: 2, Kind: record.Batch}, []byte{0}, false)
		},
		"garbage": func(journal.ID) []byte { return []byte("garbage") },
	} {
		t.Run(name, func(t *testing.T) {
			store := memlog.New(memlog.Options{Depth: 8})
			if err := store.Open().Append(t.Context(), 3, rec(store.Open().Info().ID)); err != nil {
				t.Fatal(err)
			}
			r := run(t, store.Open(), nil)
			for i := range 5 {
				propose(t, r, put("k", fmt.Sprint(i)))
			}
			if got := r.View().Get("k").Version; got != 5 {
				t.Errorf("written %d times, want 5", got)
			}
		})
	}
}

// TestForkedRecord: a replica that meets a record of its own journal that was
// written on another history ends; one of a writer that was merely too far
// away, or of another journal, it passes over.
func TestForkedRecord(t *testing.T) {
	for _, c := range []struct {
		name   string
		header func(h *record.Header)
		want   error
	}{
		{"another chain", func(h *record.Header) { h.AnchorChain[7] ^= 1 }, replica.ErrForked},
		{"another chain, at slot 0", func(h *record.Header) { h.Anchor = 0 }, replica.ErrForked},
		{"anchored at itself", func(h *record.Header) { h.Anchor++ }, replica.ErrForked},
		{"anchored far past itself", func(h *record.Header) { h.Anchor = 1 << 63 }, replica.ErrForked},
		{"another journal", func(h *record.Header) { h.Journal[0] ^= 1 }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := memlog.New(memlog.Options{})
			first := store.Open()
			id := first.Info().ID
			chains := record.NewChains(id)
			rec := record.Append(nil, &record.Header{Journal: id, Writer: 9, Number: 1, Kind: record.Batch, AnchorChain: chains.Last()}, []byte{0}, false)
			if err := first.Append(t.Context(), 1, rec); err != nil {
				t.Fatal(err)
			}
			chains.Extend(record.DigestOf(rec))
			h := record.Header{Journal: id, Writer: 9, Number: 2, Kind: record.Batch, Anchor: 1, AnchorChain: chains.Last()}
			c.header(&h)
			if err := first.Append(t.Context(), 2, record.Append(nil, &h, []byte{0}, false)); err != nil {
				t.Fatal(err)
			}
			if c.want == nil {
				propose(t, run(t, store.Open(), nil), put("k", "v"))
				return
			}
			if err := ends(t, store.Open()); !errors.Is(err, c.want) {
				t.Errorf("the replica ended with %v, want %v", err, c.want)
			}
			if recs, err := first.Read(t.Context(), 3, 10); err != nil || len(recs) > 0 {
				t.Errorf("%d records were written after the fork (%v)", len(recs), err)
			}
		})
	}
}

// twoWinners is a store that tells two writers that they hold the same slot. Each of
// them reads its own record there.
type twoWinners struct {
	journal.Store
	slot journal.Slot

	mu  sync.Mutex
	own []byte // what this process reads at the slot
}

func (w *twoWinners) Append(ctx context.Context, slot journal.Slot, rec []byte) error {
	err := w.Store.Append(ctx, slot, rec)
	if slot == w.slot && errors.Is(err, journal.ErrTaken) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.own = append([]byte(nil), rec...)
		return nil
	}
	return err
}

// TestTwoWinners: of two replicas that were told that they hold one slot, no
// more than one goes on once the other has written one record more.
func TestTwoWinners(t *testing.T) {
	store := memlog.New(memlog.Options{Depth: 1})
	r, stop := start(t, store.Open(), nil)
	propose(t, r, put("k", "0"))
	// The other follows no longer, and so takes slot 2 for free.
	other := replica.New(replica.Config{
		Store: &twoWinners{Store: store.Open(), slot: 2}, Notifier: notify.NewPolling(time.Hour, time.Hour),
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { ended <- other.Run(ctx) }()
	<-other.Ready()
	propose(t, r, put("k", "1"))
	if _, err := other.Propose(ctx, put("k", "2")); err != nil { // slot 2 too: nobody could know
		t.Fatal(err)
	}
	propose(t, r, put("k", "3"))
	if res, err := other.Propose(ctx, put("k", "4")); !errors.Is(err, replica.ErrUnknown) && !errors.Is(err, replica.ErrStopped) {
		t.Errorf("after a record of the other history the outcome is %+v, %v; want none", res, err)
	}
	if err := <-ended; !errors.Is(err, replica.ErrForked) {
		t.Errorf("the replica ended with %v, want ErrForked", err)
	}
	stop()
}

// mute is a store that does not answer Appends from a slot on, and then answers Reads of
// it with an error that stays.
type mute struct {
	journal.Store
	slot journal.Slot
	err  error

	mu   sync.Mutex
	sent bool
}

func (m *mute) Append(ctx context.Context, slot journal.Slot, rec []byte) error {
	if slot < m.slot {
		return m.Store.Append(ctx, slot, rec)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent = true
	return errors.New("no answer")
}

func (m *mute) Read(ctx context.Context, from journal.Slot, limit int) ([][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sent && from >= m.slot {
		return nil, fmt.Errorf("read slot %d: %w", from, m.err)
	}
	return m.Store.Read(ctx, from, limit)
}

func (m *mute) Info() journal.Info {
	info := m.Store.Info()
	info.Exclusive = true // nobody else reads
	return info
}

// TestAppendWithoutAnAnswerToCome: if the slot of an Append with an unknown outcome can
// never be read, the replica ends, and says why.
func TestAppendWithoutAnAnswerToCome(t *testing.T) {
	for _, want := range []error{journal.ErrTrimmed, journal.ErrCorrupt} {
		t.Run(want.Error(), func(t *testing.T) {
			if err := ends(t, &mute{Store: memlog.New(memlog.Options{}).Open(), slot: 3, err: want}); !errors.Is(err, want) {
				t.Errorf("the replica ended with %v, want %v", err, want)
			}
		})
	}
}
