package replica_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/record"
	"github.com/xbernetes/xbernetes/internal/replica"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// doomed starts a replica that may end by itself, with the error that comes.
func doomed(t *testing.T, store journal.Store, change func(*replica.Config)) (*replica.Replica, <-chan error) {
	t.Helper()
	cfg := replica.Config{
		Store:    store,
		Notifier: notify.NewPolling(2*time.Millisecond, 20*time.Millisecond),
		Logger:   slog.New(slog.DiscardHandler),
	}
	change(&cfg)
	r := replica.New(cfg)
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { ended <- r.Run(ctx); close(ended) }()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	<-r.Ready()
	return r, ended
}

// TestOneCorruptReplica: a value is altered in the memory of one of several replicas,
// which then stores a snapshot with it. That replica stops, the others go on, and a
// replica that starts has the value that was written.
func TestOneCorruptReplica(t *testing.T) {
	for healthy := 1; healthy <= 2; healthy++ {
		for _, trim := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d healthy, trim=%v", healthy, trim), func(t *testing.T) {
				store := memlog.New(memlog.Options{})
				small := func(c *replica.Config) { c.Snapshots.EveryBytes = 8 << 10 }
				var good []*replica.Replica
				for range healthy {
					good = append(good, run(t, store.Open(), small))
				}
				bad, ended := doomed(t, store.Open(), func(c *replica.Config) { small(c); c.Trim = trim })
				propose(t, bad, put("k", "true"))
				copy(bad.View().Get("k").Value, "FALSE")
				err := error(nil)
				for i := 0; err == nil; i++ {
					if i%10 == 0 {
						propose(t, good[0], put("other", "v"))
					}
					if _, proposed := bad.Propose(t.Context(), put(fmt.Sprintf("k%d", i%50), "v")); proposed != nil {
						err = <-ended
					}
					if i > 5000 {
						t.Fatal("the corrupt replica does not stop")
					}
				}
				if !errors.Is(err, replica.ErrDiverged) {
					t.Fatalf("the corrupt replica ended with %v", err)
				}
				for _, r := range append(good, run(t, store.Open(), small)) {
					propose(t, r, put("after", "v"))
					if got := string(r.View().Get("k").Value); got != "true" {
						t.Errorf("a healthy replica has %q", got)
					}
				}
			})
		}
	}
}

// sees is a journal beside which only the blobs with one prefix are seen.
type sees struct {
	journal.Store
	prefix string
}

func (s sees) ListBlobs(ctx context.Context, prefix string) ([]string, error) {
	names, err := s.Store.ListBlobs(ctx, prefix)
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, s.prefix) }), err
}

// falsify stores a snapshot, whole by its hash, of a state that the journal does not
// give: the key k has another value. It returns the slot, the journal's last.
func falsify(t *testing.T, store journal.Journal, blobs journal.Blobs) journal.Slot {
	t.Helper()
	id := store.Info().ID
	state, chains := mvcc.New(), record.NewChains(id)
	recs, err := store.Read(t.Context(), 1, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	for i, rec := range recs {
		head, body, err := chains.Take(id, rec)
		if err != nil {
			t.Fatal(err)
		}
		requests, err := mvcc.ParseRequests(body)
		if err != nil {
			t.Fatal(err)
		}
		state.Apply(journal.Slot(i+1), &mvcc.Batch{From: id, Writer: head.Writer, Number: head.Number, Requests: requests}, false)
	}
	copy(state.View().Get("k").Value, "FALSE")
	if _, err := snapshot.Write(t.Context(), blobs, id, snapshot.Author{Writer: 9, At: time.Now()}, state.Freeze(), chains); err != nil {
		t.Fatal(err)
	}
	return state.Slot()
}

// stubborn is a journal as a replica sees it that knows nothing better than the snapshot
// that it started from: the records up to there are deleted, no blob of another is seen,
// and none is deleted.
type stubborn struct {
	journal.Journal
	journal.Blobs
	journal.Trimmer
	snapshot journal.Slot
}

func (s stubborn) Read(ctx context.Context, from journal.Slot, limit int) ([][]byte, error) {
	if from <= s.snapshot {
		return nil, journal.ErrTrimmed
	}
	return s.Journal.Read(ctx, from, limit)
}

func (s stubborn) DeleteBlob(context.Context, string) error { return nil }

// TestSureReplicas: a replica has started from a false snapshot, and gets the same state
// when it makes it anew, because it knows nothing better. So it is sure of its state, as
// each right replica is. One against one, both stop; against two, it stops and the others
// go on. It does not matter who stores the snapshot that shows the difference. Whoever
// starts afterwards has the right state.
func TestSureReplicas(t *testing.T) {
	outside(t)
	for right := 1; right <= 2; right++ {
		for _, writer := range []string{"right", "wrong"} {
			t.Run(fmt.Sprintf("%d right, a %s one writes", right, writer), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { sureReplicas(t, right, writer == "wrong") })
			})
		}
	}
}

func sureReplicas(t *testing.T, right int, wrongWrites bool) {
	store := memlog.New(memlog.Options{})
	small := func(c *replica.Config) { c.Snapshots.EveryBytes = 8 << 10 }
	var all []*replica.Replica
	var ended []<-chan error
	add := func(s journal.Store) *replica.Replica {
		r, end := doomed(t, s, small)
		all, ended = append(all, r), append(ended, end)
		return r
	}
	for range right {
		add(store.Open())
	}
	for range 20 {
		propose(t, all[0], put("k", "true"))
	}
	shared, apart := store.Open(), memlog.New(memlog.Options{}).Open()
	wrong := add(stubborn{shared, apart, shared, falsify(t, shared, apart)})
	if got := string(wrong.View().Get("k").Value); got != "FALS" {
		t.Fatalf("the replica that starts from the false snapshot has %q", got)
	}
	proposer := all[0]
	if wrongWrites {
		proposer = wrong
	}
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() {
		for i, err := 0, error(nil); err == nil && i < 2000; i++ {
			_, err = proposer.Propose(ctx, put(fmt.Sprintf("k%d", i%50), "v"))
			time.Sleep(50 * time.Millisecond) // the others read
		}
	})
	defer writing.Wait()
	defer cancel()
	goOn, stop := all[:right:right], ended[right:]
	if right == 1 {
		goOn, stop = nil, ended
	}
	for _, end := range stop {
		if err := <-end; !errors.Is(err, replica.ErrDiverged) || !strings.Contains(err.Error(), "made its state twice") {
			t.Errorf("a replica ended with %v, want it to say that both are sure", err)
		}
	}
	time.Sleep(time.Minute) // whoever hesitates has decided
	for _, r := range append(goOn, run(t, store.Open(), small)) {
		propose(t, r, put("after", "v"))
		if got := string(r.View().Get("k").Value); got != "true" {
			t.Errorf("a replica has %q afterwards", got)
		}
	}
}

// TestStartFromWrongSnapshot: a replica starts from the snapshot of one that is wrong,
// before any other has looked. Both stop once a right one compares, and that one goes on,
// although it is one against two. Whoever starts afterwards has the right state.
func TestStartFromWrongSnapshot(t *testing.T) {
	store := memlog.New(memlog.Options{})
	small := func(c *replica.Config) { c.Snapshots.EveryBytes = 8 << 10 }
	wrong, endOfWrong := doomed(t, store.Open(), small)
	propose(t, wrong, put("k", "true"))
	copy(wrong.View().Get("k").Value, "FALSE")
	fill := func(r *replica.Replica) bool {
		_, err := r.Propose(t.Context(), put("k1", "v"))
		return err == nil
	}
	for len(snapshots(t, store.Open())) == 0 {
		fill(wrong)
	}
	misled, endOfMisled := doomed(t, store.Open(), small)
	if got := string(misled.View().Get("k").Value); got != "FALS" {
		t.Fatalf("the replica that starts from the false snapshot has %q", got)
	}
	right := run(t, sees{store.Open(), "none"}, small)
	for fill(wrong) {
	}
	for fill(misled) { // if it has not heard of the difference yet
	}
	for _, end := range []<-chan error{endOfWrong, endOfMisled} {
		if err := <-end; !errors.Is(err, replica.ErrDiverged) {
			t.Errorf("a wrong replica ended with %v", err)
		}
	}
	for _, r := range []*replica.Replica{right, run(t, store.Open(), small)} {
		propose(t, r, put("after", "v"))
		if got := string(r.View().Get("k").Value); got != "true" {
			t.Errorf("a replica has %q afterwards", got)
		}
	}
}

// snapshots are the slots of the snapshots that are whole.
func snapshots(t *testing.T, store journal.Store) []journal.Slot {
	t.Helper()
	names, err := store.ListBlobs(t.Context(), snapshot.Prefix)
	if err != nil {
		t.Fatal(err)
	}
	return snapshot.Slots(names)
}
