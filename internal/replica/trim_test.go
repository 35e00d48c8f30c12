package replica_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/replica"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// first is the first slot of the journal that is still there.
func first(t *testing.T, j journal.Journal) journal.Slot {
	t.Helper()
	for slot := journal.Slot(1); ; slot++ {
		switch _, err := j.Read(t.Context(), slot, 1); {
		case err == nil:
			return slot
		case !errors.Is(err, journal.ErrTrimmed):
			t.Fatal(err)
		}
	}
}

func TestTrim(t *testing.T) {
	store := memlog.New(memlog.Options{})
	small := func(c *replica.Config) { c.Snapshots.EveryBytes = 4 << 10 }
	owner, stop := start(t, store.Open(), func(c *replica.Config) { small(c); c.Trim = true })
	guest := run(t, store.Open(), small)
	// The guest writes most, and so stores most snapshots; the owner trims.
	writes := 0
	for begin := journal.Slot(1); begin < 100; begin = first(t, store.Open()) {
		for range 100 {
			writer := guest
			if writes%10 == 0 {
				writer = owner
			}
			propose(t, writer, put(fmt.Sprintf("k%d", writes%50), fmt.Sprint(writes)))
			writes++
		}
	}
	stop()
	// What is left is enough for a new replica, history included.
	restarted := run(t, store.Open(), small)
	changes, err := restarted.View().Changes(2, guest.View().Revision())
	if err != nil || len(changes) != writes {
		t.Fatalf("%d changes after the restart (%v), want %d", len(changes), err, writes)
	}
}

// createOnly denies all deletions, as a bucket does to accounts that do not own it.
type createOnly struct{ journal.Store }

func (createOnly) DeleteBlob(context.Context, string) error { return errors.New("access is denied") }

// storesNone fails to store a blob.
type storesNone struct{ journal.Store }

func (storesNone) PutBlob(context.Context, string, []byte) error { return errors.New("no room") }

// TestTrimDeletesOthersSnapshots: the owner deletes old snapshots of a guest that
// stores all of them and may delete none.
func TestTrimDeletesOthersSnapshots(t *testing.T) {
	store := memlog.New(memlog.Options{})
	small := func(c *replica.Config) { c.Snapshots.EveryBytes = 4 << 10 }
	run(t, storesNone{store.Open()}, func(c *replica.Config) { small(c); c.Trim = true })
	guest := run(t, createOnly{store.Open()}, small)
	oldest := func() journal.Slot {
		names, err := store.Open().ListBlobs(t.Context(), snapshot.Prefix)
		if err != nil {
			t.Fatal(err)
		}
		slots := snapshot.Slots(names)
		if len(slots) == 0 {
			return 0
		}
		return slots[len(slots)-1]
	}
	for writes := 0; oldest() < 300; writes++ {
		if writes == 10_000 {
			t.Fatalf("after %d writes the snapshot of slot %d is still there, and the journal begins at %d", writes, oldest(), first(t, store.Open()))
		}
		propose(t, guest, put(fmt.Sprintf("k%d", writes%50), fmt.Sprint(writes)))
	}
}

// unreadable answers every snapshot's parts with other bytes.
type unreadable struct{ journal.Store }

func (u unreadable) GetBlob(ctx context.Context, name string) ([]byte, error) {
	data, err := u.Store.GetBlob(ctx, name)
	if err == nil && !strings.HasSuffix(name, "manifest.json") {
		data[len(data)/2] ^= 1
	}
	return data, err
}

func TestTrimKeepsWhatNoSnapshotReplaces(t *testing.T) {
	store := memlog.New(memlog.Options{})
	owner := run(t, unreadable{store.Open()}, func(c *replica.Config) {
		c.Snapshots.EveryBytes = 4 << 10
		c.Trim = true
	})
	marks := func() (n int) {
		names, err := store.Open().ListBlobs(t.Context(), snapshot.Prefix)
		if err != nil {
			t.Fatal(err)
		}
		return len(snapshot.Slots(names))
	}
	for i := 0; marks() < snapshot.Keep || i < 4000; i++ {
		propose(t, owner, put(fmt.Sprintf("k%d", i%50), fmt.Sprint(i)))
	}
	if got := first(t, store.Open()); got != 1 {
		t.Errorf("slots below %d are gone, and the snapshot that stands for them cannot be read", got)
	}
	if got := marks(); got <= snapshot.Keep {
		t.Errorf("%d snapshots are left: older ones made room for what cannot be read", got)
	}
}

// busy answers some questions for a blob with an error that will pass.
type busy struct {
	journal.Store
	left *atomic.Int32
}

func (b busy) GetBlob(ctx context.Context, name string) ([]byte, error) {
	if b.left.Add(-1) >= 0 {
		return nil, errors.New("slow down")
	}
	return b.Store.GetBlob(ctx, name)
}

// TestStartOnABusyStore: a trimmed journal can only be read from a snapshot, so
// that none may be passed over because the store was busy for a moment.
func TestStartOnABusyStore(t *testing.T) {
	store := memlog.New(memlog.Options{})
	owner, stop := start(t, store.Open(), func(c *replica.Config) { c.Snapshots.EveryBytes, c.Trim = 4<<10, true })
	writes := 0
	for first(t, store.Open()) == 1 {
		propose(t, owner, put(fmt.Sprintf("k%d", writes%50), fmt.Sprint(writes)))
		writes++
	}
	want := owner.View().Revision()
	stop()
	left := &atomic.Int32{}
	left.Store(10)
	again := run(t, busy{store.Open(), left}, nil)
	if got := again.View().Revision(); got != want {
		t.Errorf("the state is at revision %d; want %d", got, want)
	}
}
