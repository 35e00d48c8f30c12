package s3log

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// filled opens a journal with records in slots 1 to n, whose Trim deletes
// also what is young.
func filled(t *testing.T, n int) (*Log, *faults, Config) {
	t.Helper()
	l, f, cfg := under(t, nil)
	l.settle = -time.Minute // the clocks of a store tick in seconds
	for slot := range n {
		if err := l.Append(t.Context(), journal.Slot(slot+1), fmt.Append(nil, slot+1)); err != nil {
			t.Fatal(err)
		}
	}
	return l, f, cfg
}

// stored returns which of the slots 1 to n have an object.
func stored(t *testing.T, l *Log, n int) (slots []int) {
	t.Helper()
	for slot := 1; slot <= n; slot++ {
		ok, err := l.exists(t.Context(), slotName(journal.Slot(slot)))
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
	l, _, cfg := filled(t, 40)
	stale := mustOpen(t, cfg)
	if err := l.Trim(t.Context(), 31); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(stored(t, l, 40)); got != "[31 32 33 34 35 36 37 38 39 40]" {
		t.Errorf("after Trim(31) there are the slots %s", got)
	}
	for _, slot := range []journal.Slot{1, 7, 30} {
		if err := stale.Append(t.Context(), slot, []byte("late")); !errors.Is(err, journal.ErrTaken) {
			t.Errorf("Append(%d) to a deleted slot = %v, want ErrTaken", slot, err)
		}
		if _, err := stale.Read(t.Context(), slot, 1); !errors.Is(err, journal.ErrTrimmed) {
			t.Errorf("Read(%d) of a deleted slot = %v, want ErrTrimmed", slot, err)
		}
		fresh := mustOpen(t, cfg)
		if err := fresh.Append(t.Context(), slot, []byte("late")); !errors.Is(err, journal.ErrTaken) {
			t.Errorf("Append(%d) to a deleted slot by a new process = %v, want ErrTaken", slot, err)
		}
	}
	if err := l.Trim(t.Context(), 31); err != nil {
		t.Fatal(err)
	}
	if got := len(stored(t, l, 40)); got != 10 {
		t.Errorf("late appends left %d objects below the floor", got-10)
	}
	if err := stale.Append(t.Context(), 41, []byte("next")); err != nil {
		t.Errorf("Append after the tail = %v", err)
	}
}

// TestTrimSparesYoungSlots: what another process may have seen empty lately is
// below the floor, but not deleted.
func TestTrimSparesYoungSlots(t *testing.T) {
	l, f, cfg := filled(t, 10)
	l.settle = settleTime
	if err := l.Trim(t.Context(), 11); err != nil {
		t.Fatal(err)
	}
	if f.count(http.MethodDelete) != 0 || len(stored(t, l, 10)) != 10 {
		t.Error("Trim deleted slots that were just written")
	}
	if _, err := mustOpen(t, cfg).Read(t.Context(), 3, 1); !errors.Is(err, journal.ErrTrimmed) {
		t.Errorf("Read below the floor = %v, want ErrTrimmed", err)
	}
	l.settle = -time.Minute // the clocks of a store tick in seconds
	if err := l.Trim(t.Context(), 11); err != nil {
		t.Fatal(err)
	}
	if got := stored(t, l, 10); got != nil {
		t.Errorf("the next Trim left the slots %v", got)
	}
}

// TestTrimGoesOn: a Trim that failed half way is done by the next one.
func TestTrimGoesOn(t *testing.T) {
	l, f, cfg := filled(t, 60)
	deletes := 0
	f.plan = func(r *http.Request) fault {
		f.mu.Lock()
		defer f.mu.Unlock()
		if r.Method == http.MethodDelete {
			if deletes++; deletes > 20 {
				return slowDown
			}
		}
		return pass
	}
	if err := l.Trim(t.Context(), 51); err == nil {
		t.Fatal("Trim = nil although the store refused to delete")
	}
	f.plan = nil
	left := stored(t, l, 60)
	if left[0] < 15 {
		t.Errorf("the first slot that is left is %d: not oldest first", left[0])
	}
	if _, err := mustOpen(t, cfg).Read(t.Context(), 50, 1); !errors.Is(err, journal.ErrTrimmed) {
		t.Errorf("Read below the floor = %v, want ErrTrimmed", err)
	}
	if err := mustOpen(t, cfg).Trim(t.Context(), 5); err != nil { // another owner, with less in mind
		t.Fatal(err)
	}
	if err := l.Trim(t.Context(), 51); err != nil {
		t.Fatal(err)
	}
	if got := stored(t, l, 60); len(got) != 10 || got[0] != 51 {
		t.Errorf("after the second Trim there are the slots %v", got)
	}
}

// TestFloorNeverFalls: an owner that raises the floor while another one does
// leaves the higher of the two.
func TestFloorNeverFalls(t *testing.T) {
	l, f, cfg := filled(t, 30)
	if err := l.Trim(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	arrived, release := make(chan struct{}), make(chan struct{})
	var held atomic.Bool
	f.plan = func(r *http.Request) fault {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, floorName) && held.CompareAndSwap(false, true) {
			close(arrived) // the first of the two, which has read that the floor is 2
			<-release
		}
		return pass
	}
	low := make(chan error, 1)
	go func() { low <- l.Trim(t.Context(), 5) }()
	<-arrived
	other := mustOpen(t, cfg)
	if err := other.Trim(t.Context(), 9); err != nil {
		t.Fatal(err)
	}
	close(release)
	if err := <-low; err != nil {
		t.Fatal(err)
	}
	floor, err := mustOpen(t, cfg).readFloor(t.Context())
	if err != nil || floor != 9 {
		t.Errorf("floor = %d, %v; want 9", floor, err)
	}
}

// TestTrimWhileReading: a slot is deleted between a reader's look at the floor
// and its look at the slot.
func TestTrimWhileReading(t *testing.T) {
	l, f, cfg := filled(t, 30)
	stale := mustOpen(t, cfg)
	arrived, release := make(chan struct{}), make(chan struct{})
	var slot, floor atomic.Bool
	store := f.store
	f.store = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, slotName(5)) && slot.CompareAndSwap(false, true) {
			<-release
		}
		store.ServeHTTP(w, r)
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, floorName) && floor.CompareAndSwap(false, true) {
			close(arrived)
		}
	})
	read := make(chan error, 1)
	go func() {
		_, err := stale.Read(t.Context(), 5, 1)
		read <- err
	}()
	<-arrived
	if err := l.Trim(t.Context(), 20); err != nil {
		t.Fatal(err)
	}
	close(release)
	if err := <-read; !errors.Is(err, journal.ErrTrimmed) {
		t.Errorf("Read = %v, want ErrTrimmed", err)
	}
}

// TestTrust: what a process saw is relied on for a minute, and only for the
// slot that it saw and those after it.
func TestTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnds(depth)
		check := func(slot journal.Slot, want bool) {
			t.Helper()
			if got := e.trusted(slot); got != want {
				t.Errorf("trusted(%d) = %v, want %v", slot, got, want)
			}
		}
		check(1, false)
		e.sawFree(10, time.Now())
		check(9, false)
		check(10, true)
		check(11, true)
		time.Sleep(10 * time.Second)
		e.sawFree(18, time.Now()) // an append that ended early does not uncover those before it
		check(10, true)
		time.Sleep(trustTime / 2)
		e.sawFree(20, time.Now())
		check(18, false)
		check(20, true)
		time.Sleep(trustTime)
		check(20, false)
	})
}

func TestTail(t *testing.T) {
	e := newEnds(depth)
	wantTail := func(want journal.Slot) {
		t.Helper()
		if got := e.known(); got != want {
			t.Errorf("tail = %d, want %d", got, want)
		}
	}
	e.held(3)
	e.held(2)
	wantTail(0)
	e.held(1)
	wantTail(3)
	e.held(6)
	e.raiseTail(5)
	wantTail(6)
	e.raiseTail(2)
	wantTail(6)
	e.raiseFloor(10)
	wantTail(9)
	if got := e.raiseFloor(4); got != 10 {
		t.Errorf("floor = %d, want 10", got)
	}
	e.keep(10, []byte("ahead"))
	if got := e.take(10, 5); got != nil {
		t.Errorf("took %q past the tail", got)
	}
	e.held(10)
	if got := e.take(10, 5); len(got) != 1 {
		t.Errorf("took %q, want one record", got)
	}
	if got := e.take(10, 5); got != nil {
		t.Errorf("took %q again", got)
	}
}
