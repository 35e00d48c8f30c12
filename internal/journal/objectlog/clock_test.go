package objectlog

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/s3log/s3test"
)

// clocked is a Config for a store in memory with a clock of its own.
func clocked(t *testing.T) (Config, *s3test.Clock) {
	t.Helper()
	store, clock := clockedStore(t, 0)
	return serve(t, store), clock
}

// clockedStore is a store in memory with a clock of its own.
func clockedStore(t *testing.T, skew time.Duration) (http.Handler, *s3test.Clock) {
	t.Helper()
	store, clock, err := s3test.New(testBucket, skew)
	if err != nil {
		t.Fatal(err)
	}
	return store, clock
}

// TestSleeperDoesNotFork: a machine whose clocks stand still while it sleeps
// wakes after its slots were trimmed, and goes on where it was.
func TestSleeperDoesNotFork(t *testing.T) {
	for name, what := range map[string]func(l *Log, slot journal.Slot) error{
		"append": func(l *Log, slot journal.Slot) error {
			err := l.Append(t.Context(), slot, []byte("of the sleeper"))
			if errors.Is(err, journal.ErrTaken) || errors.Is(err, journal.ErrTrimmed) {
				return nil
			}
			return fmt.Errorf("Append: want ErrTaken or ErrTrimmed, got %w", err)
		},
		"read": func(l *Log, slot journal.Slot) error {
			recs, err := l.Read(t.Context(), slot, 1)
			if errors.Is(err, journal.ErrTrimmed) {
				return nil
			}
			return fmt.Errorf("Read = %q: want ErrTrimmed, got %w", recs, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, clock := clocked(t)
			owner, sleeper := mustOpen(t, cfg), mustOpen(t, cfg)
			wantRead(t, sleeper, 1)
			grow(t, owner, 1, 40)
			trimAll(t, owner, clock, 31)
			if err := what(sleeper, 1); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPhantom: a record that a late PUT left in a deleted slot is never read.
func TestPhantom(t *testing.T) {
	cfg, clock := clocked(t)
	owner, sleeper := mustOpen(t, cfg), mustOpen(t, cfg)
	wantRead(t, sleeper, 1)
	grow(t, owner, 1, 40)
	trimAll(t, owner, clock, 31)
	if _, err := owner.calls.bucket.Create(t.Context(), slotName(1), owner.frames.encode(slotName(1), []byte("phantom"))); err != nil {
		t.Fatal(err)
	}
	if recs, err := sleeper.Read(t.Context(), 1, 10); !errors.Is(err, journal.ErrTrimmed) {
		t.Errorf("Read(1) = %q, %v; want ErrTrimmed", recs, err)
	}
}

// TestPauseBelowTheFloor: a process that was away while slots were written and
// given up, and not for long, goes on with them: they are all still there.
func TestPauseBelowTheFloor(t *testing.T) {
	cfg, clock := clocked(t)
	owner, away := mustOpen(t, cfg), mustOpen(t, cfg)
	grow(t, owner, 1, 40)
	if _, err := owner.Trim(t.Context(), 31); err != nil {
		t.Fatal(err)
	}
	clock.Advance(10 * time.Minute)
	recs, err := away.Read(t.Context(), 1, 100)
	if err != nil || len(recs) != 40 {
		t.Errorf("Read(1) = %d records, %v; want 40", len(recs), err)
	}
	if err := away.Append(t.Context(), 7, []byte("late")); !errors.Is(err, journal.ErrTaken) {
		t.Errorf("Append(7) = %v, want ErrTaken", err)
	}
}

// TestSleepWhileLookingForTheTail: a machine that sleeps after it has got a record, and before it
// has seen that all slots before it are held, wakes after some of them were trimmed. The record
// is not missing for it.
func TestSleepWhileLookingForTheTail(t *testing.T) {
	store, clock := clockedStore(t, 0)
	owner := mustOpen(t, serve(t, store))
	grow(t, owner, 1, 40)
	var sleep sync.Once
	sleeper := mustOpen(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Range") != "" && strings.Contains(r.URL.Path, slotPrefix) {
			sleep.Do(func() { trimAll(t, owner, clock, 31) })
		}
		store.ServeHTTP(w, r)
	})))
	if recs, err := sleeper.Read(t.Context(), 40, 1); err != nil || len(recs) != 1 {
		t.Errorf("Read(40) = %d records, %v; want the one that is there", len(recs), err)
	}
	if recs, err := sleeper.Read(t.Context(), 42, 1); err != nil || len(recs) != 0 {
		t.Errorf("Read(42) = %d records, %v; want none", len(recs), err)
	}
}

// TestOldSignature: a machine whose clock stood still does not sign as if it
// had not, so that a store that looks at signatures refuses them.
func TestOldSignature(t *testing.T) {
	store, clock := clockedStore(t, 15*time.Minute)
	l := mustOpen(t, serve(t, store))
	clock.Advance(time.Hour)
	for range 3 { // the SDK would learn from the first
		err := l.Append(t.Context(), 1, []byte("late"))
		if err == nil || !strings.Contains(err.Error(), "set the clock") {
			t.Errorf("Append by a clock that is an hour late = %v", err)
		}
	}
}

// TestNoDate: a store that does not say what time it is, is refused.
func TestNoDate(t *testing.T) {
	store := memoryStore(t)
	cfg := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Date"] = nil
		store.ServeHTTP(w, r)
	}))
	for range 2 { // it makes the journal, and then finds it
		if _, err := openS3(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "carry no Date") {
			t.Errorf("Open = %v", err)
		}
	}
}

// TestFloorWithoutIfMatch: a store that knows If-None-Match alone, and ignores
// If-Match, keeps a floor up all the same.
func TestFloorWithoutIfMatch(t *testing.T) {
	cfg, clock := clocked(t)
	l := mustOpen(t, cfg)
	grow(t, l, 1, 30)
	for _, before := range []journal.Slot{20, 5, 12} {
		if _, err := mustOpen(t, cfg).Trim(t.Context(), before); err != nil {
			t.Fatal(err)
		}
	}
	clock.Advance(time.Hour)
	if floor, err := l.floors.look(t.Context()); err != nil || floor != 20 {
		t.Errorf("the floor is %d, %v; want 20", floor, err)
	}
}

func grow(t *testing.T, l *Log, from, to journal.Slot) {
	t.Helper()
	for slot := from; slot <= to; slot++ {
		if err := l.Append(t.Context(), slot, fmt.Append(nil, slot)); err != nil {
			t.Fatal(err)
		}
	}
}

// trimAll trims until the slots are deleted, for which the store's clock moves on.
func trimAll(t *testing.T, l *Log, clock *s3test.Clock, before journal.Slot) {
	t.Helper()
	for range 2 {
		if _, err := l.Trim(t.Context(), before); err != nil {
			t.Fatal(err)
		}
		clock.Advance(time.Hour)
	}
	if _, err := l.Trim(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	if held, err := l.calls.bucket.Exists(t.Context(), slotName(before-1)); err != nil || held {
		t.Fatalf("slot %d is still there after Trim (%v)", before-1, err)
	}
}
