package replica_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
	"github.com/xbernetes/xbernetes/internal/replica"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// alone is a journal that this process has to itself.
type alone struct {
	journal.Store
	read atomic.Int64 // records
	full atomic.Bool  // blobs are refused
}

func (a *alone) Info() journal.Info {
	info := a.Store.Info()
	info.Exclusive = true
	return info
}

func (a *alone) Read(ctx context.Context, from journal.Slot, limit int) ([][]byte, error) {
	recs, err := a.Store.Read(ctx, from, limit)
	a.read.Add(int64(len(recs)))
	return recs, err
}

func (a *alone) PutBlob(ctx context.Context, name string, data []byte) error {
	if a.full.Load() && strings.HasSuffix(name, "manifest.json") {
		return errors.New("disk is full")
	}
	return a.Store.PutBlob(ctx, name, data)
}

// TestSnapshotsUnderACrashLoop: a server that ends again and again, before its
// snapshots are stored, does not take longer and longer to start, and leaves no
// blobs behind that belong to none.
func TestSnapshotsUnderACrashLoop(t *testing.T) {
	outside(t)
	synctest.Test(t, crashLoop)
}

func crashLoop(t *testing.T) {
	store := memlog.New(memlog.Options{})
	const every = 64 << 10
	small := func(c *replica.Config) { c.Snapshots.EveryBytes = every }
	most, total := int64(0), 0
	for life := range 30 {
		a := &alone{Store: store.Open()}
		r, stop := start(t, a, small)
		most = max(most, a.read.Load())
		t.Logf("life %d read %d", life, a.read.Load())
		a.full.Store(life%3 == 0) // what is due in this life is not stored
		for range 120 {
			propose(t, r, put(fmt.Sprintf("k%d", total%10), strings.Repeat("v", 100)))
			total++
		}
		time.Sleep(time.Second)
		stop()
	}
	// Some 500 bytes a record: a snapshot is due every 130 of them.
	if most > 600 {
		t.Errorf("a start read %d of %d records", most, total)
	}
	r, stop := start(t, &alone{Store: store.Open()}, small)
	propose(t, r, put("k", "v"))
	time.Sleep(time.Second)
	stop()
	names, err := store.Open().ListBlobs(t.Context(), snapshot.Prefix)
	if err != nil {
		t.Fatal(err)
	}
	slots := snapshot.Slots(names)
	for _, slot := range slots {
		m, err := snapshot.ReadManifest(t.Context(), store.Open(), slot)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range m.Blobs() {
			names = without(names, name)
		}
	}
	if len(names) > 0 {
		t.Errorf("%d blobs belong to no snapshot: %q", len(names), names[0])
	}
}

func without(names []string, name string) (out []string) {
	for _, n := range names {
		if n != name {
			out = append(out, n)
		}
	}
	return out
}

// TestMissedSnapshotIsTriedSoon: a snapshot that could not be stored is tried again
// long before the next one would be due.
func TestMissedSnapshotIsTriedSoon(t *testing.T) {
	outside(t)
	synctest.Test(t, missedSnapshot)
}

func missedSnapshot(t *testing.T) {
	a := &alone{Store: memlog.New(memlog.Options{}).Open()}
	a.full.Store(true)
	r, stop := start(t, a, func(c *replica.Config) { c.Snapshots.EveryBytes = 256 << 10 })
	defer stop()
	slots := func() []journal.Slot {
		names, err := a.ListBlobs(t.Context(), snapshot.Prefix)
		if err != nil {
			t.Fatal(err)
		}
		if len(names) == 0 {
			return nil
		}
		return snapshot.Slots(names)
	}
	tried := func() bool {
		names, _ := a.ListBlobs(t.Context(), snapshot.Prefix)
		return len(names) > 0
	}
	writes := 0
	write := func() {
		propose(t, r, put(fmt.Sprintf("k%d", writes%10), strings.Repeat("v", 1000)))
		writes++
		time.Sleep(time.Millisecond)
	}
	for !tried() {
		write()
	}
	a.full.Store(false)
	first := writes
	for len(slots()) == 0 && writes < 3*first {
		write()
	}
	if again := writes - first; again > first/2 {
		t.Errorf("the first was due after %d writes; what was missed was stored after %d more", first, again)
	}
}

// outside makes what the process has one of, and what must not belong to a bubble.
func outside(t *testing.T) {
	t.Helper()
	some := record.Compress(nil, []byte("some"))
	for _, most := range []int{mvcc.MaxFirstPart, mvcc.MaxPart, record.MaxBody, record.AnchorSpan * len(record.Chain{})} {
		if _, err := record.Decompress(some, most); err != nil {
			t.Fatal(err)
		}
	}
}
