package archive_test

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
	"github.com/xbernetes/xbernetes/internal/replica/access"
	"github.com/xbernetes/xbernetes/internal/replica/archive"
	"github.com/xbernetes/xbernetes/internal/replica/stats"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// history is a journal of so many records, each of which puts one key, and its archive.
type history struct {
	*testing.T
	store journal.Store
	*archive.Archive
}

func newHistory(t *testing.T, slots journal.Slot) history {
	store := memlog.New(memlog.Options{}).Open()
	log := slog.New(slog.DiscardHandler)
	calls := access.New(access.Config{Store: store, Name: "test", Timeout: time.Minute, Attempt: time.Minute, Logger: log, Counts: &stats.New().Calls})
	h := history{t, store, archive.New(store, calls, 7, log)}
	chains := record.NewChains(store.Info().ID)
	for slot := journal.Slot(1); slot <= slots; slot++ {
		header := record.Header{Journal: store.Info().ID, Writer: 1, Number: mvcc.BatchNumber(slot), Anchor: slot - 1, AnchorChain: chains.Last(), Kind: record.Batch}
		rec := record.Append(nil, &header, mvcc.AppendRequests(nil, []*mvcc.Request{put(slot, "v")}), false)
		if err := store.Append(t.Context(), slot, rec); err != nil {
			t.Fatal(err)
		}
		chains.Extend(record.DigestOf(rec))
	}
	return h
}

func put(slot journal.Slot, value string) *mvcc.Request {
	return &mvcc.Request{Kind: mvcc.Txn, Then: []mvcc.Op{{Kind: mvcc.OpPut, Range: mvcc.KeyRange{Key: fmt.Sprint("k", slot)}, Value: []byte(value)}}}
}

// snapshot stores a snapshot of the state at slot, with that value under every key: "v" is
// what the journal gives. It returns the snapshot's hash.
func (h history) snapshot(slot journal.Slot, value string) [32]byte {
	h.Helper()
	recs, err := h.store.Read(h.Context(), 1, int(slot))
	if err != nil || len(recs) != int(slot) {
		h.Fatalf("%d records, %v", len(recs), err)
	}
	id := h.store.Info().ID
	state, chains := mvcc.New(), record.NewChains(id)
	for i, rec := range recs {
		at := journal.Slot(i + 1)
		head, _, err := chains.Take(id, rec)
		if err != nil {
			h.Fatal(err)
		}
		state.Apply(at, &mvcc.Batch{From: id, Writer: head.Writer, Number: head.Number, Requests: []mvcc.Request{*put(at, value)}}, false)
	}
	w, err := snapshot.Write(h.Context(), h.store, id, snapshot.Author{Writer: 1, At: time.Now()}, state.Freeze(), chains)
	if err != nil {
		h.Fatal(err)
	}
	return w.Hash
}

func (h history) disputed(slot journal.Slot) bool {
	h.Helper()
	_, err := h.store.GetBlob(h.Context(), snapshot.DisputeOf(slot))
	if err != nil && !errors.Is(err, journal.ErrNoBlob) {
		h.Fatal(err)
	}
	return err == nil
}

// restores checks the slot of the state that a replica would start from.
func (h history) restores(want journal.Slot, what string) {
	h.Helper()
	got, err := h.Restore(h.Context())
	if err != nil || got.State.Slot() != want || got.Chains.Slot() != want {
		h.Errorf("%s: restored the state at slot %d and the chains at %d, %v; want %d", what, got.State.Slot(), got.Chains.Slot(), err, want)
	}
}

// TestRestore: a replica starts from the newest snapshot that is whole and not disputed.
func TestRestore(t *testing.T) {
	h := newHistory(t, 30)
	h.restores(0, "no snapshot")
	h.snapshot(10, "v")
	h.snapshot(20, "v")
	h.restores(20, "two snapshots")
	h.Dispute(t.Context(), 20)
	h.restores(10, "the newer one is disputed")
	h.snapshot(30, "v")
	if err := h.store.PutBlob(t.Context(), snapshot.Folder(30)+"manifest.json", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	h.restores(10, "the newest one is not whole")
}

// TestCanStartFrom: a snapshot can be started from if it is there, with that hash, and is
// not disputed.
func TestCanStartFrom(t *testing.T) {
	h := newHistory(t, 10)
	hash := h.snapshot(10, "v")
	if err := h.CanStartFrom(t.Context(), 10, hash); err != nil {
		t.Errorf("a sound snapshot: %v", err)
	}
	if err := h.CanStartFrom(t.Context(), 10, [32]byte{1}); !errors.Is(err, snapshot.ErrBad) {
		t.Errorf("with another hash: %v, want ErrBad", err)
	}
	if err := h.CanStartFrom(t.Context(), 5, hash); !errors.Is(err, journal.ErrNoBlob) {
		t.Errorf("where there is none: %v, want ErrNoBlob", err)
	}
	h.Dispute(t.Context(), 10)
	if err := h.CanStartFrom(t.Context(), 10, hash); !errors.Is(err, snapshot.ErrBad) {
		t.Errorf("disputed: %v, want ErrBad", err)
	}
}

// TestRecompute: the hash of a state is made anew from the journal, and snapshots on the way
// that have another state are disputed, and no others.
func TestRecompute(t *testing.T) {
	h := newHistory(t, 30)
	h.snapshot(10, "v")
	h.snapshot(20, "forged")
	want := h.snapshot(30, "v")
	for _, trusted := range []journal.Slot{0, 10} {
		got, err := h.Recompute(t.Context(), 30, trusted)
		if err != nil || got != want {
			t.Errorf("the hash at slot 30, where %d is trusted: %x, %v; want %x", trusted, got, err, want)
		}
	}
	if h.disputed(10) || !h.disputed(20) || h.disputed(30) {
		t.Errorf("disputed are 10: %v, 20: %v, 30: %v; want 20 alone", h.disputed(10), h.disputed(20), h.disputed(30))
	}
}

// TestRecomputeOfTrimmed: without its first records, a state is made from the oldest
// snapshot.
func TestRecomputeOfTrimmed(t *testing.T) {
	h := newHistory(t, 30)
	h.snapshot(10, "v")
	want := h.snapshot(30, "v")
	if _, err := h.store.Trim(t.Context(), 8); err != nil {
		t.Fatal(err)
	}
	if got, err := h.Recompute(t.Context(), 30, 0); err != nil || got != want {
		t.Errorf("the hash at slot 30 = %x, %v; want %x", got, err, want)
	}
}

// TestDisputeFrom: later snapshots are disputed with a wrong one, but for those whose hashes
// are known to be right.
func TestDisputeFrom(t *testing.T) {
	h := newHistory(t, 30)
	h.snapshot(5, "v")
	h.snapshot(10, "forged")
	h.snapshot(20, "forged")
	right := h.snapshot(30, "v")
	if err := h.DisputeFrom(t.Context(), 10, map[journal.Slot][32]byte{30: right}); err != nil {
		t.Fatal(err)
	}
	for slot, want := range map[journal.Slot]bool{5: false, 10: true, 20: true, 30: false} {
		if h.disputed(slot) != want {
			t.Errorf("the snapshot at %d is disputed: %v, want %v", slot, h.disputed(slot), want)
		}
	}
}
