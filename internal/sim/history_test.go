package sim

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/xbernetes/xbernetes/internal/journal/sqllog/pgtest"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/replica"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "the seed of the first history; 0 draws one")
	seedsFlag = flag.Int("seeds", 12, "how many histories to run in memory, and a quarter as many on each other store")
)

const (
	machines = 3
	inMemory = 4 // histories for each on another store
	clients  = 4 // on each machine
	writes   = 120
	lasts    = 4 * time.Second // a history, at most
)

// change is what a client was told of its write, or a watcher was shown.
type change struct {
	mod        mvcc.Revision
	key, value string
}

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// TestHistories: whatever happens to servers, their machines and the store, each
// acknowledged write is in the history that is left, once and at its revision; each
// watch was shown all changes of that history in order, even if it moved from one server
// to another; and no two replicas differ at the same slot. Servers are killed; machines
// sleep, and their clocks with them, while slots that they have not read are trimmed;
// the store's clock runs at a pace of its own, and jumps. A seed fixes what is done, but
// not the order in which goroutines run: a failure may need several runs of its seed to
// be seen again.
func TestHistories(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	var mu sync.Mutex
	var all tally
	t.Cleanup(func() { // after the parallel ones
		t.Logf("%d histories from seed %d on: %+v", *seedsFlag, seed, all)
		if all.acked == 0 || all.watched == 0 || all.sleeps == 0 {
			t.Error("nothing was written or watched, or nobody slept: the histories say nothing")
		}
	})
	for i := range *seedsFlag {
		for on := range stores {
			if on != "memory" && i%inMemory != 0 {
				continue
			}
			t.Run(fmt.Sprintf("seed=%d/%s", seed+uint64(i), on), func(t *testing.T) {
				t.Parallel()
				n := history(t, seed+uint64(i), on)
				mu.Lock()
				defer mu.Unlock()
				all.add(n)
			})
		}
	}
}

func history(t *testing.T, seed uint64, on string) tally {
	w := newWorld(t, seed, machines, on)
	var servers, others errgroup.Group
	for _, m := range w.machines {
		servers.Go(m.serve)
	}
	acked := make([][]change, machines*clients)
	var writers errgroup.Group
	for c := range acked {
		writers.Go(func() error {
			acked[c] = w.write(w.machines[c%machines], c, rand.New(rand.NewPCG(seed, uint64(100+c))))
			return nil
		})
	}
	shown := make([][]change, machines)
	for i := range shown {
		others.Go(func() (err error) {
			shown[i], err = w.watch(rand.New(rand.NewPCG(seed, uint64(200+i))))
			return err
		})
	}
	others.Go(func() error { w.disturb(rand.New(rand.NewPCG(seed, 300))); return nil })
	for _, m := range w.machines {
		others.Go(func() error { return w.hashes(m) })
	}
	end := time.AfterFunc(lasts, w.stop)
	defer end.Stop()
	_ = writers.Wait() // they do not fail
	w.stop()
	if err := errors.Join(servers.Wait(), others.Wait()); err != nil {
		t.Error(err)
	}
	w.check(acked, shown)
	return w.tally
}

// write writes through whichever server runs on a machine, and returns what was
// acknowledged.
func (w *world) write(m *machine, client int, dice *rand.Rand) (acked []change) {
	for i := 0; i < writes && w.ctx.Err() == nil; i++ {
		r := m.now.Load()
		if r == nil {
			w.pause(time.Millisecond)
			continue
		}
		w.pause(time.Duration(dice.IntN(10)) * time.Millisecond)
		c := change{key: fmt.Sprint("k", dice.IntN(20)), value: fmt.Sprintf("%d.%d", client, i)}
		res, err := r.Propose(w.ctx, &mvcc.Request{Kind: mvcc.Txn, Then: []mvcc.Op{
			{Kind: mvcc.OpPut, Range: mvcc.KeyRange{Key: c.key}, Value: []byte(c.value)}}})
		if err != nil {
			w.count(func(t *tally) { t.unknown++ })
			continue
		}
		c.mod = res.Revision
		acked = append(acked, c)
		w.count(func(t *tally) { t.acked++ })
	}
	return acked
}

// watch follows all changes through one server after another, and returns what it was
// shown. With each server it goes on from the revision to which it had come.
func (w *world) watch(dice *rand.Rand) (shown []change, err error) {
	next := mvcc.Revision(1)
	for w.ctx.Err() == nil {
		r := w.machines[dice.IntN(machines)].now.Load()
		if r == nil {
			w.pause(time.Millisecond)
			continue
		}
		feed, every := r.NewFeed(), mvcc.KeyRange{End: mvcc.FromKey}
		feed.Add(every)
		for until := time.After(time.Duration(dice.IntN(400)) * time.Millisecond); ; {
			v, _, _ := feed.Take()
			if v.Revision() >= next {
				changes, err := v.Changes(next, v.Revision())
				if err != nil {
					return shown, fmt.Errorf("watch from revision %d: %w", next, err)
				}
				for _, c := range changes {
					shown = append(shown, change{c.KV.Mod, c.KV.Key, string(c.KV.Value)})
				}
				w.count(func(t *tally) { t.watched += len(changes) })
				next = v.Revision() + 1
			}
			select {
			case <-feed.Wake():
				continue
			case <-until:
			case <-r.Done():
			case <-w.ctx.Done():
			}
			break
		}
		feed.Remove(every)
	}
	return shown, nil
}

// hashes looks at the states that the servers of a machine come to.
func (w *world) hashes(m *machine) error {
	for w.ctx.Err() == nil {
		if r := m.now.Load(); r != nil {
			if slot, hash, err := r.Hash(w.ctx); err == nil && slot > 0 {
				if err := w.compare(slot, hash); err != nil {
					return err
				}
			}
		}
		w.pause(5 * time.Millisecond)
	}
	return nil
}

// check holds what clients and watchers were told against what the journal holds.
func (w *world) check(acked, shown [][]change) {
	t := w.t
	log, err := w.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	r := replica.New(replica.Config{Store: log, Notifier: notify.NewPolling(time.Millisecond, time.Millisecond), Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("a new server ended: %v", err)
		}
	}()
	select {
	case <-r.Ready():
	case err := <-ended:
		t.Errorf("a new server cannot start: %v", err)
		ended <- nil
		return
	}
	v, err := r.Linearizable(t.Context())
	if err != nil {
		t.Error(err)
		return
	}
	slot, hash, err := r.Hash(t.Context())
	if err == nil {
		err = w.compare(slot, hash)
	}
	if err != nil {
		t.Error(err)
	}
	changes, err := v.Changes(1, v.Revision())
	if err != nil {
		t.Error(err)
		return
	}
	var left []change
	at, times := map[mvcc.Revision]change{}, map[string]int{}
	for _, c := range changes {
		c := change{c.KV.Mod, c.KV.Key, string(c.KV.Value)}
		left, at[c.mod] = append(left, c), c
		if times[c.value]++; times[c.value] > 1 {
			t.Errorf("the write of %s to %s happened %d times", c.value, c.key, times[c.value])
		}
	}
	for _, list := range acked {
		for _, c := range list {
			if at[c.mod] != c {
				t.Errorf("the write of %s to %s was acknowledged at revision %d, which is of %+v", c.value, c.key, c.mod, at[c.mod])
			}
		}
	}
	for i, list := range shown {
		for n, c := range list {
			if n >= len(left) || left[n] != c {
				t.Errorf("watcher %d was shown %+v as change %d of a history that has %d", i, c, n, len(left))
				break
			}
		}
	}
}
