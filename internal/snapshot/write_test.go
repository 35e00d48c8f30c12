package snapshot_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// stateAt is the state and the chains after so many slots, each with one key more.
func stateAt(id journal.ID, slots journal.Slot) (*mvcc.Frozen, *record.Chains) {
	state, chains := mvcc.New(), record.NewChains(id)
	for slot := journal.Slot(1); slot <= slots; slot++ {
		put := mvcc.Request{Kind: mvcc.Txn, Then: []mvcc.Op{{Kind: mvcc.OpPut, Range: mvcc.KeyRange{Key: fmt.Sprint("k", slot)}, Value: []byte("v")}}}
		state.Apply(slot, &mvcc.Batch{From: id, Writer: 1, Number: mvcc.BatchNumber(slot), Requests: []mvcc.Request{put}}, false)
		chains.Extend(record.DigestOf([]byte(fmt.Sprint(slot))))
	}
	return state.Freeze(), chains
}

// author wrote the snapshots of these tests.
var author = snapshot.Author{Writer: 7, At: time.Unix(1e9, 0).UTC()}

func write(t *testing.T, store journal.Store, slot journal.Slot) snapshot.Written {
	t.Helper()
	state, chains := stateAt(store.Info().ID, slot)
	w, err := snapshot.Write(t.Context(), store, store.Info().ID, author, state, chains)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func names(t *testing.T, store journal.Store) []string {
	t.Helper()
	list, err := store.ListBlobs(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestWriteAndLoad: what is written is loaded again, with the hash of the state.
func TestWriteAndLoad(t *testing.T) {
	store := memlog.New(memlog.Options{}).Open()
	state, chains := stateAt(store.Info().ID, 30)
	want, err := snapshot.Hash(t.Context(), state, chains.Last())
	if err != nil {
		t.Fatal(err)
	}
	w := write(t, store, 30)
	if err := w.ReadBack(t.Context(), store); err != nil || !w.Hashed || w.Hash != want {
		t.Fatalf("wrote %+v (read back: %v), want the hash %x", w, err, want)
	}
	loaded, err := snapshot.Load(t.Context(), store, store.Info().ID, 30)
	if err != nil || loaded.Hash != want || loaded.State.Slot() != 30 || loaded.Chains.Last() != chains.Last() {
		t.Errorf("loaded %+v, %v; want the state at slot 30 with the hash %x", loaded, err, want)
	}
	if _, err := snapshot.Load(t.Context(), store, journal.ID{1}, 30); !errors.Is(err, snapshot.ErrBad) {
		t.Errorf("the snapshot of another journal: %v, want ErrBad", err)
	}
	m, err := snapshot.ReadManifest(t.Context(), store, 30)
	if err != nil {
		t.Fatal(err)
	}
	if m.Author() != author || m.Bytes != w.Bytes {
		t.Errorf("the manifest says that %+v wrote %d bytes, want %+v and %d", m.Author(), m.Bytes, author, w.Bytes)
	}
	blobs := m.Blobs()
	slices.Sort(blobs)
	if got := names(t, store); !slices.Equal(got, blobs) {
		t.Errorf("the snapshot consists of %q, and the store has %q", blobs, got)
	}
}

// kept is a store that lets nobody replace a blob.
type kept struct{ journal.Store }

func (k kept) PutBlob(ctx context.Context, name string, data []byte) error {
	there, err := k.GetBlob(ctx, name)
	if err == nil && !bytes.Equal(there, data) {
		return errors.New("denied")
	}
	return k.Store.PutBlob(ctx, name, data)
}

// TestWriteAgain: the same snapshot may be written by somebody else later, also where
// blobs are never replaced. A snapshot of another state may not.
func TestWriteAgain(t *testing.T) {
	store := kept{memlog.New(memlog.Options{}).Open()}
	write(t, store, 30)
	state, chains := stateAt(store.Info().ID, 30)
	if _, err := snapshot.Write(t.Context(), store, store.Info().ID, snapshot.Author{Writer: 8}, state, chains); err != nil {
		t.Errorf("the same snapshot, by another writer: %v", err)
	}
	if _, err := snapshot.Write(t.Context(), store, journal.ID{1}, snapshot.Author{Writer: 8}, state, chains); err == nil {
		t.Error("a snapshot of another journal, where one is: nil, want that it is denied")
	}
}

// TestAuthor: what a manifest says of its writer is read, or left out.
func TestAuthor(t *testing.T) {
	for writer, want := range map[string]mvcc.WriterID{"": 0, "7": 0, "00000000000000ff": 255, "+00000000000000f": 0, "zzzzzzzzzzzzzzzz": 0} {
		if got := (&snapshot.Manifest{Writer: writer}).Author().Writer; got != want {
			t.Errorf("the writer %q is %d, want %d", writer, got, want)
		}
	}
}

// TestLoadChecksTheHash: a snapshot whose manifest names another hash than that of its
// state is not loaded.
func TestLoadChecksTheHash(t *testing.T) {
	store := memlog.New(memlog.Options{}).Open()
	write(t, store, 30)
	m, err := snapshot.ReadManifest(t.Context(), store, 30)
	if err != nil {
		t.Fatal(err)
	}
	m.Hash = strings.Repeat("0", len(m.Hash))
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.PutBlob(t.Context(), snapshot.Folder(30)+"manifest.json", data); err != nil {
		t.Fatal(err)
	}
	if _, err := snapshot.Load(t.Context(), store, store.Info().ID, 30); !errors.Is(err, snapshot.ErrBad) {
		t.Errorf("a state with another hash than the manifest's is loaded: %v; want ErrBad", err)
	}
}

// failing refuses the blobs whose names end so.
type failing struct {
	journal.Store
	suffix string
}

var errFull = errors.New("disk is full")

func (f failing) PutBlob(ctx context.Context, name string, data []byte) error {
	if strings.HasSuffix(name, f.suffix) {
		return errFull
	}
	return f.Store.PutBlob(ctx, name, data)
}

// TestWriteThatFails: the hash of a state is known once all of it was seen, even if
// the manifest could not be stored.
func TestWriteThatFails(t *testing.T) {
	store := memlog.New(memlog.Options{}).Open()
	state, chains := stateAt(store.Info().ID, 3)
	want := write(t, store, 3).Hash
	for suffix, hashed := range map[string]bool{"manifest.json": true, "": false} {
		empty := memlog.New(memlog.Options{}).Open()
		w, err := snapshot.Write(t.Context(), failing{empty, suffix}, store.Info().ID, author, state, chains)
		if !errors.Is(err, errFull) || w.Hashed != hashed || hashed && w.Hash != want {
			t.Errorf("without blobs that end in %q: %+v, %v; want hashed %v", suffix, w, err, hashed)
		}
	}
}

// TestDelete: of the snapshots, the newest ones stay, those that are not known to be
// replaced stay, and a disputed one is no replacement.
func TestDelete(t *testing.T) {
	slots := func(store journal.Store) []journal.Slot { return snapshot.Slots(names(t, store)) }
	build := func() journal.Store {
		store := memlog.New(memlog.Options{}).Open()
		for _, slot := range []journal.Slot{1, 2, 3, 4, 5} {
			write(t, store, slot)
		}
		if err := store.PutBlob(t.Context(), snapshot.DisputeOf(5), nil); err != nil {
			t.Fatal(err)
		}
		return store
	}
	for sure, want := range map[journal.Slot][]journal.Slot{5: {5, 4, 3}, 3: {5, 4, 3}, 2: {5, 4, 3, 2}, 0: {5, 4, 3, 2, 1}} {
		store := build()
		if err := snapshot.DeleteOld(t.Context(), store, sure); err != nil || !slices.Equal(slots(store), want) {
			t.Errorf("if slot %d is sure, the snapshots of slots %v stay (%v), want %v", sure, slots(store), err, want)
		}
	}
	store := build()
	if deleted, err := snapshot.DeleteAbove(t.Context(), store, 3); err != nil || !slices.Equal(deleted, []journal.Slot{5, 4}) || !slices.Equal(slots(store), []journal.Slot{3, 2, 1}) {
		t.Errorf("above slot 3 the snapshots %v were deleted (%v), and %v stay", deleted, err, slots(store))
	}
	whole := names(t, store)
	if err := store.PutBlob(t.Context(), snapshot.Folder(9)+"part", nil); err != nil {
		t.Fatal(err)
	}
	if err := snapshot.DeleteOrphans(t.Context(), store); err != nil || !slices.Equal(names(t, store), whole) {
		t.Errorf("without orphans the store has %q (%v), want %q", names(t, store), err, whole)
	}
}
