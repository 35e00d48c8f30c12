package replica_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/replica"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run starts a replica on store and stops it when the test ends.
func run(t *testing.T, store journal.Store, change func(*replica.Config)) *replica.Replica {
	t.Helper()
	r, stop := start(t, store, change)
	t.Cleanup(stop)
	return r
}

func start(t *testing.T, store journal.Store, change func(*replica.Config)) (*replica.Replica, func()) {
	t.Helper()
	cfg := replica.Config{
		Store:    store,
		Notifier: notify.NewPolling(2*time.Millisecond, 20*time.Millisecond),
		Logger:   slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if change != nil {
		change(&cfg)
	}
	r := replica.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	select {
	case <-r.Ready():
	case err := <-ended:
		t.Fatalf("replica ended before it was ready: %v", err)
	}
	return r, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("replica ended with %v", err)
		}
	}
}

func put(key, value string) *mvcc.Request {
	return &mvcc.Request{Kind: mvcc.Txn, Then: []mvcc.Op{{Kind: mvcc.OpPut, Range: mvcc.KeyRange{Key: key}, Value: []byte(value)}}}
}

// swap puts value if the key is at revision mod, and reads it otherwise.
func swap(key string, mod mvcc.Revision, value string) *mvcc.Request {
	return &mvcc.Request{
		Kind:     mvcc.Txn,
		Compares: []mvcc.Compare{{Range: mvcc.KeyRange{Key: key}, Target: mvcc.TargetMod, Int: int64(mod)}},
		Then:     []mvcc.Op{{Kind: mvcc.OpPut, Range: mvcc.KeyRange{Key: key}, Value: []byte(value)}},
		Else:     []mvcc.Op{{Kind: mvcc.OpRange, Range: mvcc.KeyRange{Key: key}}},
	}
}

func propose(t *testing.T, r *replica.Replica, req *mvcc.Request) mvcc.Result {
	t.Helper()
	res, err := r.Propose(t.Context(), req)
	if err != nil {
		t.Fatalf("propose: %v", err)
	}
	return res
}

func TestTwoReplicasOneJournal(t *testing.T) {
	store := memlog.New(memlog.Options{})
	a, b := run(t, store.Open(), nil), run(t, store.Open(), nil)

	if res := propose(t, a, put("k", "1")); res.Err != nil || res.Revision != 2 {
		t.Fatalf("first put: %+v, want revision 2", res)
	}
	v, err := b.Linearizable(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if kv := v.Get("k"); kv == nil || string(kv.Value) != "1" {
		t.Fatalf("b reads %+v after a's put was acknowledged", kv)
	}
	// Both race from revision 2; exactly one wins, and the other reads why.
	ra, rb := propose(t, a, swap("k", 2, "a")), propose(t, b, swap("k", 2, "b"))
	if !ra.Succeeded || rb.Succeeded {
		t.Fatalf("a %+v, b %+v: want a to win", ra, rb)
	}
	if got := string(rb.Ops[0].Read.KVs[0].Value); got != "a" {
		t.Fatalf("loser reads %q", got)
	}
}

func TestFeedSeesEveryChange(t *testing.T) {
	store := memlog.New(memlog.Options{})
	a, b := run(t, store.Open(), nil), run(t, store.Open(), nil)
	f := b.NewFeed()
	all := mvcc.KeyRange{Key: "p/", End: "p0"}
	f.Add(all)
	defer f.Remove(all)
	v, _, _ := f.Take()
	cursor := v.Revision() + 1

	const n = 200
	var writes sync.WaitGroup
	defer writes.Wait()
	writes.Go(func() {
		for i := range n {
			propose(t, a, put(fmt.Sprintf("p/%d", i%7), fmt.Sprint(i)))
			propose(t, a, put("other", "x"))
		}
	})
	for seen := 0; seen < n; {
		<-f.Wake()
		v, first, last := f.Take()
		if first == 0 {
			continue
		}
		if first < cursor {
			t.Fatalf("told of revision %d again", first)
		}
		changes, err := v.Changes(first, last)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range changes {
			if all.Contains(c.KV.Key) {
				if want := fmt.Sprint(seen); string(c.KV.Value) != want {
					t.Fatalf("change %d has value %s", seen, c.KV.Value)
				}
				seen++
			}
		}
		cursor = last + 1
	}
}

func TestRestartFromSnapshot(t *testing.T) {
	store := memlog.New(memlog.Options{})
	small := func(c *replica.Config) { c.Snapshots.EveryBytes = 4 << 10 }
	a, stop := start(t, store.Open(), small)
	b := run(t, store.Open(), small) // checks a's snapshots
	// A snapshot is stored beside the writes; write until one is there.
	writes := 0
	for stored := false; !stored || writes%500 != 0; writes++ {
		propose(t, a, put(fmt.Sprintf("k%d", writes%50), fmt.Sprint(writes)))
		names, err := store.Open().ListBlobs(t.Context(), "snapshot/")
		if err != nil {
			t.Fatal(err)
		}
		stored = slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, "manifest.json") })
	}
	want, err := a.Linearizable(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stop()
	c := run(t, store.Open(), small)
	got := c.View()
	if got.Revision() < want.Revision() {
		t.Fatalf("restarted at revision %d, was at %d", got.Revision(), want.Revision())
	}
	for i := range 50 {
		key := fmt.Sprintf("k%d", i)
		w, g := want.Get(key), got.Get(key)
		if g == nil || string(g.Value) != string(w.Value) || g.Mod != w.Mod || g.Version != w.Version {
			t.Fatalf("%s: %+v after the restart, was %+v", key, g, w)
		}
	}
	// History from before the restart is still there to watch.
	changes, err := got.Changes(2, want.Revision())
	if err != nil || len(changes) != writes {
		t.Fatalf("%d changes after the restart (%v), want %d", len(changes), err, writes)
	}
	if res := propose(t, b, put("k0", "again")); res.Err != nil {
		t.Fatal(res.Err)
	}
}
