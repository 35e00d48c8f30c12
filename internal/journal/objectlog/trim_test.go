package objectlog

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/objecttest"
	"github.com/xbernetes/xbernetes/internal/journal/s3log/s3test"
)

// filled opens a journal with records in slots 1 to n, on a store with a clock
// of its own.
func filled(t *testing.T, n int) (*Log, *objecttest.Faults, Config, *s3test.Clock) {
	t.Helper()
	store, clock := clockedStore(t, 0)
	f := objecttest.NewFaults(store, objecttest.S3, nil)
	cfg := serve(t, f)
	l := mustOpen(t, cfg)
	grow(t, l, 1, journal.Slot(n))
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		f.Count(method)
	}
	return l, f, cfg, clock
}

// ripe is how long it takes until Trim deletes; the Date of a store has seconds.
var ripe = realSpans.kept + 2*time.Second

// stored returns which of the slots 1 to n have an object.
func stored(t *testing.T, l *Log, n int) (slots []int) {
	t.Helper()
	for slot := 1; slot <= n; slot++ {
		ok, err := l.calls.bucket.Exists(t.Context(), slotName(journal.Slot(slot)))
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			slots = append(slots, slot)
		}
	}
	return slots
}

// TestTrimDeletes: objects below the floor go, and a process that did not
// hear of it cannot mistake a deleted slot for an empty one.
func TestTrimDeletes(t *testing.T) {
	l, _, cfg, clock := filled(t, 40)
	stale := mustOpen(t, cfg)
	if deleted, err := l.Trim(t.Context(), 31); err != nil || deleted != 0 {
		t.Fatalf("the first Trim deleted %d slots, %v; want none: others may rely on them", deleted, err)
	}
	clock.Advance(ripe)
	if deleted, err := l.Trim(t.Context(), 31); err != nil || deleted != 30 {
		t.Fatalf("the second Trim deleted %d slots, %v; want 30", deleted, err)
	}
	if got := fmt.Sprint(stored(t, l, 40)); got != "[31 32 33 34 35 36 37 38 39 40]" {
		t.Errorf("after Trim(31) there are the slots %s", got)
	}
	for _, slot := range []journal.Slot{1, 7, 30} {
		if err := mustOpen(t, cfg).Append(t.Context(), slot, []byte("late")); !errors.Is(err, journal.ErrTrimmed) {
			t.Errorf("Append(%d) to a deleted slot by a new process = %v, want ErrTrimmed", slot, err)
		}
		if _, err := stale.Read(t.Context(), slot, 1); !errors.Is(err, journal.ErrTrimmed) {
			t.Errorf("Read(%d) of a deleted slot = %v, want ErrTrimmed", slot, err)
		}
		if _, err := stale.Peek(t.Context(), slot); !errors.Is(err, journal.ErrTrimmed) {
			t.Errorf("Peek(%d) at a deleted slot = %v, want ErrTrimmed", slot, err)
		}
		if err := stale.Append(t.Context(), slot, []byte("late")); !errors.Is(err, journal.ErrTaken) {
			t.Errorf("Append(%d) to a slot that is known to be gone = %v, want ErrTaken", slot, err)
		}
	}
	if deleted, err := l.Trim(t.Context(), 31); err != nil || deleted != 3 {
		t.Fatalf("Trim deleted %d slots, %v; want the 3 that late Appends left", deleted, err)
	}
	if got := len(stored(t, l, 40)); got != 10 {
		t.Errorf("late appends left %d objects below the floor", got-10)
	}
	if err := stale.Append(t.Context(), 41, []byte("next")); err != nil {
		t.Errorf("Append after the tail = %v", err)
	}
}

// TestTrimDropsOldFloors: of the floors, those stay that somebody may need.
func TestTrimDropsOldFloors(t *testing.T) {
	l, _, _, clock := filled(t, 40)
	for _, before := range []journal.Slot{10, 20, 30, 40} {
		clock.Advance(ripe / 2)
		if _, err := l.Trim(t.Context(), before); err != nil {
			t.Fatal(err)
		}
	}
	var left []journal.Slot
	err := eachNumbered(t.Context(), l.calls.bucket, floorPrefix, 1, func(page []numbered, _ time.Time) (bool, error) {
		for _, o := range page {
			left = append(left, o.slot)
		}
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(left) != "[20 30 40]" {
		t.Errorf("the floors %v are left; want 20, below which slots are deleted, and later ones", left)
	}
}

// TestTrimGoesOn: a Trim that failed half way is done by the next one.
func TestTrimGoesOn(t *testing.T) {
	l, f, cfg, clock := filled(t, 60)
	if _, err := l.Trim(t.Context(), 51); err != nil {
		t.Fatal(err)
	}
	clock.Advance(ripe)
	var mu sync.Mutex
	deletes := 0 // guarded by mu
	f.Plan = func(r *http.Request) objecttest.Fault {
		mu.Lock()
		defer mu.Unlock()
		if r.Method == http.MethodDelete {
			if deletes++; deletes > 20 {
				return objecttest.SlowDown
			}
		}
		return objecttest.Pass
	}
	deleted, err := l.Trim(t.Context(), 51)
	if err == nil {
		t.Fatal("Trim = nil although the store refused to delete")
	}
	f.Plan = nil
	left := stored(t, l, 60)
	if left[0] < 15 || deleted != 60-len(left) {
		t.Errorf("the first slot that is left is %d, and %d were said to be deleted of %d: not oldest first", left[0], deleted, 60-len(left))
	}
	if _, err := mustOpen(t, cfg).Read(t.Context(), 50, 1); !errors.Is(err, journal.ErrTrimmed) {
		t.Errorf("Read below the floor = %v, want ErrTrimmed", err)
	}
	if _, err := mustOpen(t, cfg).Trim(t.Context(), 5); err != nil { // another owner, with less in mind
		t.Fatal(err)
	}
	if _, err := l.Trim(t.Context(), 51); err != nil {
		t.Fatal(err)
	}
	if got := stored(t, l, 60); len(got) != 10 || got[0] != 51 {
		t.Errorf("after the second Trim there are the slots %v", got)
	}
}

// TestTrimWhileReading: a slot is deleted between a reader's look at the floors
// and its look at the slot.
func TestTrimWhileReading(t *testing.T) {
	l, f, cfg, clock := filled(t, 30)
	stale := mustOpen(t, cfg)
	if _, err := l.Trim(t.Context(), 20); err != nil {
		t.Fatal(err)
	}
	arrived, release := make(chan struct{}), make(chan struct{})
	let := sync.OnceFunc(func() { close(release) })
	defer let()
	var slot, floor atomic.Bool
	store := f.Store
	f.Store = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, slotName(5)) && slot.CompareAndSwap(false, true) {
			<-release
		}
		store.ServeHTTP(w, r)
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Query().Get("prefix"), floorPrefix) && floor.CompareAndSwap(false, true) {
			close(arrived)
		}
	})
	read := make(chan error, 1)
	go func() {
		_, err := stale.Read(t.Context(), 5, 1)
		read <- err
	}()
	<-arrived
	clock.Advance(ripe)
	if deleted, err := l.Trim(t.Context(), 20); err != nil || deleted != 19 {
		t.Fatal(deleted, err)
	}
	let()
	if err := <-read; !errors.Is(err, journal.ErrTrimmed) {
		t.Errorf("Read = %v, want ErrTrimmed", err)
	}
}

// TestCovers: a look at the floors covers answers that are near to it, by the
// store's clock; never those of a store that does not say when, nor those from
// before its clock was set back.
func TestCovers(t *testing.T) {
	const trust = time.Minute
	f := newFloors(nil, newTail(depth))
	f.spans.trust = trust
	look := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	check := func(oldest, newest time.Time, want bool) {
		t.Helper()
		if got := f.covers(oldest, newest); got != want {
			t.Errorf("covers(%v, %v) = %v, want %v", oldest, newest, got, want)
		}
	}
	check(look, look, false) // nobody has looked
	f.raise(7, 7)
	f.noteLook(look)
	check(look, look, true)
	check(look.Add(-trust), look.Add(trust), true)
	check(look, look.Add(trust+time.Second), false)
	check(look.Add(-trust-time.Second), look, false)
	check(time.Time{}, look, false)
	check(look, look.Add(trust/3), true)
	if f.due() {
		t.Error("another look is due after a third of the time")
	}
	check(look, look.Add(trust*2/3), true)
	if !f.due() {
		t.Error("no other look is due after two thirds of the time")
	}
	if !f.trimmed(6) || f.trimmed(7) {
		t.Error("the floor is not 7")
	}
}

func TestTail(t *testing.T) {
	tl := newTail(depth)
	f := newFloors(nil, tl)
	wantTail := func(want journal.Slot) {
		t.Helper()
		if got := tl.known(); got != want {
			t.Errorf("tail = %d, want %d", got, want)
		}
	}
	tl.held(3)
	tl.held(2)
	wantTail(0)
	tl.held(1)
	wantTail(3)
	tl.held(6)
	tl.raise(5)
	wantTail(6)
	tl.raise(2)
	wantTail(6)
	f.raise(10, 10)
	wantTail(9)
	f.raise(4, 4)
	if got := f.noteLook(time.Time{}); got != 10 {
		t.Errorf("floor = %d, want 10", got)
	}
	tl.keep(10, []byte("ahead"))
	if got := tl.take(10, 5); got != nil {
		t.Errorf("took %q past the tail", got)
	}
	tl.held(10)
	if got := tl.take(10, 5); len(got) != 1 {
		t.Errorf("took %q, want one record", got)
	}
	if got := tl.take(10, 5); got != nil {
		t.Errorf("took %q again", got)
	}
}
