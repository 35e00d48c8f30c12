package faultlog_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/faultlog"
	"github.com/xbernetes/xbernetes/internal/journal/journaltest"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func wrap(t *testing.T, store *memlog.Store, cfg faultlog.Config) *faultlog.Store {
	t.Helper()
	s, err := faultlog.New(store.Open(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// Without faults, and with delays alone, the wrapped journal is a journal.
func TestStore(t *testing.T) {
	journaltest.Run(t, func(*testing.T) journaltest.Fixture {
		store := memlog.New(memlog.Options{MaxRecord: 1 << 20})
		cfg := faultlog.Config{Delay: 0.05, MaxDelay: time.Microsecond}
		return journaltest.Fixture{Open: func(context.Context) (journal.Store, error) { return faultlog.New(store.Open(), cfg) }}
	})
}

func held(t *testing.T, store *memlog.Store, slot journal.Slot) bool {
	t.Helper()
	recs, err := store.Open().Read(t.Context(), slot, 1)
	if err != nil {
		t.Fatal(err)
	}
	return len(recs) == 1
}

func TestFates(t *testing.T) {
	for _, tc := range []struct {
		name   string
		cfg    faultlog.Config
		want   error
		stored bool
		counts faultlog.Counts
	}{
		{"none", faultlog.Config{}, nil, true, faultlog.Counts{}},
		{"fail", faultlog.Config{Fail: 1}, faultlog.ErrInjected, false, faultlog.Counts{Fail: 1}},
		{"fail applied", faultlog.Config{FailApplied: 1}, faultlog.ErrInjected, true, faultlog.Counts{FailApplied: 1}},
		{"false taken", faultlog.Config{FalseTaken: 1}, journal.ErrTaken, true, faultlog.Counts{FalseTaken: 1}},
		{"late", faultlog.Config{Late: 1}, faultlog.ErrInjected, false, faultlog.Counts{Late: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlog.New(memlog.Options{})
				s := wrap(t, store, tc.cfg)
				if err := s.Append(t.Context(), 1, []byte("x")); !errors.Is(err, tc.want) {
					t.Fatalf("Append = %v, want %v", err, tc.want)
				}
				if got := held(t, store, 1); got != tc.stored {
					t.Errorf("the slot is held: %v, want %v", got, tc.stored)
				}
				if got := s.Counts(); got != tc.counts {
					t.Errorf("Counts = %+v, want %+v", got, tc.counts)
				}
			})
		})
	}
}

func TestLate(t *testing.T) {
	land := func(t *testing.T, store *memlog.Store, s *faultlog.Store) faultlog.Counts {
		if err := s.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		return s.Counts()
	}
	t.Run("lands", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := memlog.New(memlog.Options{})
			s := wrap(t, store, faultlog.Config{Late: 1})
			buf := []byte("late")
			_ = s.Append(t.Context(), 1, buf)
			copy(buf, "!!!!") // the caller's again, however late the record lands
			if n := land(t, store, s); n.Landed != 1 {
				t.Fatalf("Counts = %+v, want one landed", n)
			}
			if recs, _ := store.Open().Read(t.Context(), 1, 1); len(recs) != 1 || string(recs[0]) != "late" {
				t.Fatalf("slot 1 holds %q, want late", recs)
			}
		})
	})
	t.Run("finds its slot taken", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := memlog.New(memlog.Options{})
			s := wrap(t, store, faultlog.Config{Late: 1})
			_ = s.Append(t.Context(), 1, []byte("late"))
			if err := store.Open().Append(t.Context(), 1, []byte("quick")); err != nil {
				t.Fatal(err)
			}
			if n := land(t, store, s); n.Late != 1 || n.Landed != 0 {
				t.Fatalf("Counts = %+v, want one late and none landed", n)
			}
		})
	})
	t.Run("is lost in an outage", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := memlog.New(memlog.Options{})
			s := wrap(t, store, faultlog.Config{Late: 1})
			_ = s.Append(t.Context(), 1, []byte("late"))
			s.SetOutage(true)
			if n := land(t, store, s); n.Landed != 0 || held(t, store, 1) {
				t.Fatalf("Counts = %+v, want none landed", n)
			}
		})
	})
	t.Run("is lost on Close", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := memlog.New(memlog.Options{})
			s := wrap(t, store, faultlog.Config{Late: 1})
			_ = s.Append(t.Context(), 1, []byte("late"))
			_ = s.Close()
			if n := s.Counts(); n.Landed != 0 || held(t, store, 1) {
				t.Fatalf("Counts = %+v, want none landed", n)
			}
		})
	})
	t.Run("after its caller's deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := memlog.New(memlog.Options{})
			s := wrap(t, store, faultlog.Config{Late: 1, Seed: 7})
			var timeouts int
			for slot := journal.Slot(1); slot <= 20; slot++ {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				err := s.Append(ctx, slot, []byte("late"))
				if errors.Is(err, context.DeadlineExceeded) {
					timeouts++
				} else if !errors.Is(err, faultlog.ErrInjected) {
					t.Fatalf("Append = %v", err)
				}
				cancel()
				if land(t, store, s); !held(t, store, slot) {
					t.Fatalf("slot %d did not land", slot)
				}
			}
			if timeouts == 0 || timeouts == 20 {
				t.Errorf("%d of 20 late appends timed out, want some", timeouts)
			}
		})
	})
}

func TestOutage(t *testing.T) {
	store := memlog.New(memlog.Options{})
	s := wrap(t, store, faultlog.Config{})
	ctx := t.Context()
	if err := s.PutBlob(ctx, "b", nil); err != nil {
		t.Fatal(err)
	}
	s.SetOutage(true)
	_, read := s.Read(ctx, 1, 1)
	_, get := s.GetBlob(ctx, "b")
	_, list := s.ListBlobs(ctx, "")
	_, peek := s.Peek(ctx, 1)
	_, trim := s.Trim(ctx, 1)
	errs := []error{s.Append(ctx, 1, nil), read, peek, get, list, s.PutBlob(ctx, "c", nil), s.DeleteBlob(ctx, "b"), trim}
	for i, err := range errs {
		if !errors.Is(err, faultlog.ErrOutage) {
			t.Errorf("call %d in an outage = %v, want ErrOutage", i, err)
		}
	}
	s.SetOutage(false)
	if err := s.Append(ctx, 1, nil); err != nil {
		t.Errorf("Append after the outage = %v", err)
	}
	if names, err := s.ListBlobs(ctx, ""); err != nil || len(names) != 1 {
		t.Errorf("ListBlobs after the outage = %q, %v; want what was there before", names, err)
	}
	if n := s.Counts().Outage; n != len(errs) {
		t.Errorf("%d calls counted as outage, want %d", n, len(errs))
	}
}

func TestReadAndWriteFaults(t *testing.T) {
	ctx := t.Context()
	s := wrap(t, memlog.New(memlog.Options{}), faultlog.Config{ReadFail: 1})
	_, read := s.Read(ctx, 1, 1)
	_, get := s.GetBlob(ctx, "b")
	_, list := s.ListBlobs(ctx, "")
	_, peek := s.Peek(ctx, 1)
	for i, err := range []error{read, peek, get, list} {
		if !errors.Is(err, faultlog.ErrInjected) {
			t.Errorf("read %d = %v, want ErrInjected", i, err)
		}
	}
	s = wrap(t, memlog.New(memlog.Options{}), faultlog.Config{WriteFail: 1, Seed: 1})
	for i := range 40 {
		if err := s.PutBlob(ctx, fmt.Sprintf("b%d", i), nil); !errors.Is(err, faultlog.ErrInjected) {
			t.Errorf("PutBlob = %v, want ErrInjected", err)
		}
	}
	if names, _ := s.ListBlobs(ctx, ""); len(names) == 0 || len(names) == 40 {
		t.Errorf("%d of 40 failed blobs are there, want some", len(names))
	}
}

func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := wrap(t, memlog.New(memlog.Options{}), faultlog.Config{Delay: 1, MaxDelay: time.Hour, Seed: 3})
		start := time.Now()
		if err := s.Append(t.Context(), 1, nil); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took <= 0 || took > time.Hour {
			t.Errorf("a delayed Append took %v, want up to an hour", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		if _, err := s.Read(ctx, 1, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Read whose deadline ends in the delay = %v, want DeadlineExceeded", err)
		}
	})
}

// The same seed meets the same faults; another seed meets others.
func TestSeed(t *testing.T) {
	run := func(t *testing.T, seed uint64) (fates []string) {
		synctest.Test(t, func(t *testing.T) {
			s := wrap(t, memlog.New(memlog.Options{}), faultlog.Config{Seed: seed, Fail: 0.2, FailApplied: 0.2, Late: 0.2, FalseTaken: 0.2, Delay: 0.2})
			for range 3 {
				for slot := journal.Slot(1); slot <= 8; slot++ {
					err := s.Append(t.Context(), slot, []byte{byte(slot)})
					fates = append(fates, fmt.Sprint(slot, err, s.Counts()))
					_ = s.Settle(t.Context())
				}
			}
		})
		return fates
	}
	one, again, two := run(t, 1), run(t, 1), run(t, 2)
	if !reflect.DeepEqual(one, again) {
		t.Errorf("seed 1 gave %v, then %v", one, again)
	}
	if reflect.DeepEqual(one, two) {
		t.Error("seeds 1 and 2 gave the same faults")
	}
	s := wrap(t, memlog.New(memlog.Options{}), faultlog.Config{})
	if s.Seed() == 0 || s.String() != fmt.Sprintf("faultlog(seed=%d)", s.Seed()) {
		t.Errorf("no seed was drawn: %v", s)
	}
}

func TestConfig(t *testing.T) {
	for _, cfg := range []faultlog.Config{{Fail: -0.1}, {Late: 1.1}, {Fail: 0.6, Late: 0.6}, {MaxDelay: -1}} {
		if _, err := faultlog.New(memlog.New(memlog.Options{}).Open(), cfg); err == nil {
			t.Errorf("New(%+v) = nil, want an error", cfg)
		}
	}
}

// TestSettleWhileOthersAppend: waiting for the late records is safe beside those who
// add some. The race detector judges.
func TestSettleWhileOthersAppend(t *testing.T) {
	s := wrap(t, memlog.New(memlog.Options{}), faultlog.Config{Late: 1, MaxLate: time.Microsecond})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 200 {
			_ = s.Append(t.Context(), 1, []byte("late"))
		}
	}()
	for waiting := true; waiting; {
		if err := s.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-done:
			waiting = false
		default:
		}
	}
}
