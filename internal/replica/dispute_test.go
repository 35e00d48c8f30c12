package replica_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
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
// give: the key k has another value.
func falsify(t *testing.T, store journal.Store) journal.Slot {
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
	if _, err := snapshot.Write(t.Context(), store, id, state.Freeze(), chains); err != nil {
		t.Fatal(err)
	}
	return state.Slot()
}

// TestBothSidesAreSure: two replicas have different states, and each gets the same state
// when it makes it anew: one of them starts from a false snapshot, and the other one
// from the records. One stops once it hears twice from the other, which is sure then.
func TestBothSidesAreSure(t *testing.T) {
	store := memlog.New(memlog.Options{})
	first, stop := start(t, store.Open(), nil)
	for range 20 {
		propose(t, first, put("k", "true"))
	}
	stop()
	slot := falsify(t, store.Open())
	small := func(c *replica.Config) { c.Snapshots.EveryBytes = 8 << 10 }
	misled, endOfMisled := doomed(t, sees{store.Open(), snapshot.Folder(slot)}, small)
	if got := string(misled.View().Get("k").Value); got != "FALS" {
		t.Fatalf("the replica that starts from the false snapshot has %q", got)
	}
	other, endOfOther := doomed(t, sees{store.Open(), "none"}, small)
	began := time.Now()
	for i := 0; time.Since(began) < time.Minute; i++ { // a second, if nothing else runs
		_, proposed := misled.Propose(t.Context(), put(fmt.Sprintf("k%d", i%50), "v"))
		_, _ = other.Linearizable(t.Context()) // so that it keeps up
		err := error(nil)
		select {
		case err = <-endOfOther:
		case err = <-endOfMisled:
		default:
			if proposed != nil {
				err = <-endOfMisled
			}
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, replica.ErrDiverged) || !strings.Contains(err.Error(), "as this one did twice") {
			t.Fatalf("a replica ended with %v, want it to say that both are sure", err)
		}
		return
	}
	t.Fatal("two replicas that are sure of different states go on beside each other")
}
