package replica_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/replica"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// beside is a journal with the blobs of another, as if an old copy of the journal had
// been put back without its blobs.
type beside struct {
	journal.Store
	blobs journal.Store
}

func (b beside) Info() journal.Info { return b.blobs.Info() }
func (b beside) GetBlob(ctx context.Context, name string) ([]byte, error) {
	return b.blobs.GetBlob(ctx, name)
}
func (b beside) ListBlobs(ctx context.Context, prefix string) ([]string, error) {
	return b.blobs.ListBlobs(ctx, prefix)
}

// TestSnapshotAboveTheTail: a journal that ends before its newest snapshot has lost its
// end. A replica serves nothing of it, and appends nothing in place of what is lost.
func TestSnapshotAboveTheTail(t *testing.T) {
	whole := memlog.New(memlog.Options{})
	r, stop := start(t, whole.Open(), func(c *replica.Config) { c.Snapshots.EveryBytes = 4 << 10 })
	stored := func() journal.Slot {
		names, err := whole.Open().ListBlobs(t.Context(), snapshot.Prefix)
		if err != nil {
			t.Fatal(err)
		}
		return append(snapshot.Slots(names), 0)[0]
	}
	for i := 0; stored() <= 5; i++ {
		propose(t, r, put(fmt.Sprintf("k%d", i%10), fmt.Sprint(i)))
	}
	stop()
	short := memlog.New(memlog.Options{})
	recs, err := whole.Open().Read(t.Context(), 1, 5)
	if err != nil {
		t.Fatal(err)
	}
	for i, rec := range recs {
		if err := short.Open().Append(t.Context(), journal.Slot(i+1), rec); err != nil {
			t.Fatal(err)
		}
	}
	again := replica.New(replica.Config{
		Store:    beside{short.Open(), whole.Open()},
		Notifier: notify.NewPolling(time.Second, time.Second),
		Logger:   slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // it served, before
	defer cancel()
	err = again.Run(ctx)
	if !errors.Is(err, replica.ErrLostEnd) {
		t.Fatalf("Run = %v, want it to say what is missing", err)
	}
	if dropped, err := snapshot.DeleteAbove(t.Context(), whole.Open(), 5); err != nil || len(dropped) == 0 {
		t.Fatalf("dropped the snapshots of slots %v, %v", dropped, err)
	}
	if r := run(t, beside{short.Open(), whole.Open()}, nil); propose(t, r, put("on", "v")).Revision > 10 {
		t.Error("the state is not that of the first 5 slots")
	}
}

// TestHostileManifest: a manifest of a slot that the journal does not have is refused
// before any part is read that it names.
func TestHostileManifest(t *testing.T) {
	store := memlog.New(memlog.Options{}).Open()
	const slot = 1_000_000
	m := map[string]any{
		"format": journal.FormatVersion, "journal": store.Info().ID.String(), "slot": slot,
		"chains": snapshot.Folder(slot) + strings.Repeat("0", 64), "parts": []string{snapshot.Folder(slot) + strings.Repeat("1", 64)},
	}
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.PutBlob(t.Context(), snapshot.Folder(slot)+"manifest.json", data); err != nil {
		t.Fatal(err)
	}
	err = replica.New(replica.Config{
		Store:    noParts{t, store},
		Notifier: notify.NewPolling(time.Second, time.Second),
		Logger:   slog.New(slog.DiscardHandler),
	}).Run(t.Context())
	if !errors.Is(err, replica.ErrLostEnd) {
		t.Errorf("Run = %v, want it to say that the journal ends before", err)
	}
}

// noParts is a journal of whose snapshots only the manifests may be read.
type noParts struct {
	t *testing.T
	journal.Store
}

func (s noParts) GetBlob(ctx context.Context, name string) ([]byte, error) {
	if !strings.HasSuffix(name, "/manifest.json") {
		s.t.Errorf("%s is read", name)
	}
	return s.Store.GetBlob(ctx, name)
}
