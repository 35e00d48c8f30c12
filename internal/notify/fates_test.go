package notify_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/faultlog"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/replica"
)

// bus carries hints between the replicas of a test.
type bus struct {
	ears []*ear
	fate func(slot journal.Slot, hear func(journal.Slot)) // of each hint; nil: it is heard
}

// ear is one replica's place at a bus. It implements notify.Source.
type ear struct {
	bus   *bus
	woken *notify.Woken
	up    atomic.Bool
}

func (e *ear) Run(ctx context.Context, to *notify.Woken) {
	e.up.Store(true)
	to.Up()
	<-ctx.Done()
	e.up.Store(false)
}

func (e *ear) Tell(slot journal.Slot) {
	for _, other := range e.bus.ears {
		if other == e {
			continue
		}
		hear := func(slot journal.Slot) {
			if other.up.Load() {
				other.woken.Heard(slot)
			}
		}
		if e.bus.fate == nil {
			hear(slot)
		} else {
			e.bus.fate(slot, hear)
		}
	}
}

// counting counts the calls on a journal that cost a request.
type counting struct {
	journal.Store
	appends, reads atomic.Int64
}

func (c *counting) Append(ctx context.Context, slot journal.Slot, rec []byte) error {
	c.appends.Add(1)
	return c.Store.Append(ctx, slot, rec)
}

func (c *counting) Read(ctx context.Context, from journal.Slot, limit int) ([][]byte, error) {
	c.reads.Add(1)
	return c.Store.Read(ctx, from, limit)
}

// server is one replica of a test, on a bus.
type server struct {
	*replica.Replica
	*ear
	store *counting
}

// serve runs a replica until ctx ends.
func (b *bus) serve(ctx context.Context, t *testing.T, store journal.Store) *server {
	s := &server{ear: &ear{bus: b}, store: &counting{Store: store}}
	log := slog.New(slog.DiscardHandler)
	s.woken = notify.NewWoken(s.ear, 100*time.Millisecond, time.Second, log)
	b.ears = append(b.ears, s.ear)
	s.Replica = replica.New(replica.Config{Store: s.store, Notifier: s.woken, Logger: log})
	go func() {
		if err := s.Replica.Run(ctx); err != nil {
			t.Errorf("replica ended with %v", err)
		}
	}()
	<-s.Ready()
	return s
}

func (s *server) put(t *testing.T, key string) mvcc.Revision {
	t.Helper()
	res, err := s.Propose(t.Context(), &mvcc.Request{Kind: mvcc.Txn, Then: []mvcc.Op{{Kind: mvcc.OpPut, Range: mvcc.KeyRange{Key: key}, Value: []byte("v")}}})
	if errors.Is(err, replica.ErrUnknown) || errors.Is(err, replica.ErrUnavailable) {
		return 0 // the faults of the journal took too long; the states must be equal all the same
	}
	if err != nil || res.Err != nil {
		t.Fatalf("put %s: %v, %v", key, err, res.Err)
	}
	return res.Revision
}

// within runs two servers on one journal in virtual time.
func within(t *testing.T, fate func(journal.Slot, func(journal.Slot)), faults *faultlog.Config, test func(t *testing.T, a, b *server)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer func() { stop(); time.Sleep(time.Minute) }() // late Appends end, too
		store := memlog.New(memlog.Options{})
		open := func() journal.Store {
			if faults == nil {
				return store.Open()
			}
			faulty, err := faultlog.New(store.Open(), *faults)
			if err != nil {
				t.Fatal(err)
			}
			return faulty
		}
		b := &bus{fate: fate}
		first, second := b.serve(ctx, t, open()), b.serve(ctx, t, open())
		time.Sleep(70 * time.Second) // at rest, and between two polls
		test(t, first, second)
	})
}

// TestWatchCostsOnePutAndOneNotification also counts what the notification leads to: a
// Read of the record, and a Read that finds the tail behind it.
func TestWatchCostsOnePutAndOneNotification(t *testing.T) {
	told := 0
	within(t, func(slot journal.Slot, hear func(journal.Slot)) { told++; hear(slot) }, nil, func(t *testing.T, a, b *server) {
		puts, reads := a.store.appends.Load(), b.store.reads.Load()
		rev := a.put(t, "k")
		synctest.Wait()
		if b.View().Revision() < rev {
			t.Fatal("the other server does not have the write before any time has passed")
		}
		if n := a.store.appends.Load() - puts; n != 1 || told != 1 {
			t.Errorf("%d PUTs and %d notifications, want one of each", n, told)
		}
		if n := b.store.reads.Load() - reads; n > 2 {
			t.Errorf("%d Reads at the server that was woken, want at most 2", n)
		}
	})
}

func TestIdleServersPollTwiceAMinute(t *testing.T) {
	within(t, nil, nil, func(t *testing.T, a, b *server) {
		reads := b.store.reads.Load()
		time.Sleep(10 * time.Minute)
		if n := b.store.reads.Load() - reads; n > 20 {
			t.Errorf("%d Reads in ten minutes at rest, want at most 20", n)
		}
	})
}

// TestFatesChangeNothingButLatency has hints meet each fate, over a journal with faults
// and without, and compares the states.
func TestFatesChangeNothingButLatency(t *testing.T) {
	faulty := &faultlog.Config{Seed: 7, Fail: .1, FailApplied: .1, Late: .1, Delay: .2}
	fates := map[string]func(slot journal.Slot, hear func(journal.Slot)){
		"lost":    func(journal.Slot, func(journal.Slot)) {},
		"doubled": func(s journal.Slot, hear func(journal.Slot)) { hear(s); hear(s) },
		"late by an hour": func(s journal.Slot, hear func(journal.Slot)) {
			time.AfterFunc(time.Hour, func() { hear(s) })
		},
		"reordered": func(s journal.Slot, hear func(journal.Slot)) {
			time.AfterFunc(time.Duration(100-s%100)*10*time.Millisecond, func() { hear(s) })
		},
		"forged": func(s journal.Slot, hear func(journal.Slot)) {
			for _, other := range []journal.Slot{0, 1, s + 1, s + 1000, math.MaxUint64} {
				hear(other)
			}
		},
	}
	for name, fate := range fates {
		for _, faults := range []*faultlog.Config{nil, faulty} {
			t.Run(fmt.Sprintf("%s, faults %v", name, faults != nil), func(t *testing.T) {
				within(t, fate, faults, func(t *testing.T, a, b *server) {
					for i := range 10 {
						a.put(t, fmt.Sprint("a", i))
						b.put(t, fmt.Sprint("b", i))
						time.Sleep(time.Second)
					}
					time.Sleep(5 * time.Minute)
					if name == "late by an hour" {
						time.Sleep(time.Hour)
					}
					slotA, hashA, errA := a.Hash(t.Context())
					slotB, hashB, errB := b.Hash(t.Context())
					if errA != nil || errB != nil || slotA != slotB || hashA != hashB {
						t.Errorf("at slot %d and %d the states differ, or %v, %v", slotA, slotB, errA, errB)
					}
				})
			})
		}
	}
}

func TestLostHintsBringFastPollingBack(t *testing.T) {
	lost := false
	within(t, func(slot journal.Slot, hear func(journal.Slot)) {
		if !lost {
			hear(slot)
		}
	}, nil, func(t *testing.T, a, b *server) {
		lost = true
		a.put(t, "first")
		time.Sleep(40 * time.Second) // the slow poll, and the grace after it
		rev := a.put(t, "second")
		time.Sleep(1100 * time.Millisecond)
		if b.View().Revision() < rev {
			t.Error("after a lost notification, the server does not poll every second")
		}
		if n := b.woken.Counts().Lost; n != 1 {
			t.Errorf("%d lost, want 1", n)
		}
		lost = false
		for i := range 20 {
			a.put(t, fmt.Sprint("k", i))
			time.Sleep(time.Second)
		}
		reads := b.store.reads.Load()
		time.Sleep(10 * time.Minute)
		if n := b.store.reads.Load() - reads; n > 20 {
			t.Errorf("%d Reads in ten minutes after the notifications came back, want at most 20", n)
		}
	})
}

func TestFloodOfForgedHintsCostsOneReadASecond(t *testing.T) {
	within(t, nil, nil, func(t *testing.T, a, b *server) {
		reads := b.store.reads.Load()
		for i := range journal.Slot(60_000) {
			b.woken.Heard(1<<40 + i)
			time.Sleep(time.Millisecond)
		}
		// A second for each wake and for each poll, and ten wakes at once to begin with.
		if n := b.store.reads.Load() - reads; n > 60+60+10+5 {
			t.Errorf("%d Reads in a minute of forged notifications", n)
		}
	})
}
