package objectlog

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// TestOldFloorsAreListedOnce: however many floors nobody deletes, a process
// lists those below the newest one that it knows a single time.
func TestOldFloorsAreListedOnce(t *testing.T) {
	l, floors := listed(t, 20_000, time.Hour)
	floors.clock.Advance(2 * realSpans.trust)
	if _, err := l.Read(t.Context(), 20_000, 1); err != nil {
		t.Fatal(err)
	}
	if got := floors.lists.Swap(0); got != 20 {
		t.Errorf("the first look took %d LISTs, want one for each 1,000 floors", got)
	}
	floors.clock.Advance(2 * realSpans.trust)
	if _, err := l.Read(t.Context(), 20_000, 1); err != nil {
		t.Fatal(err)
	}
	if got := floors.lists.Load(); got > 2 {
		t.Errorf("another look took %d LISTs, want those of one page", got)
	}
	if _, err := l.Read(t.Context(), 19_999, 1); !errors.Is(err, journal.ErrTrimmed) {
		t.Errorf("Read below the highest floor = %v, want ErrTrimmed", err)
	}
}

// TestFloorsAreListedFromWhereALookEnded: if a look fails half way, the next one goes
// on from there.
func TestFloorsAreListedFromWhereALookEnded(t *testing.T) {
	l, floors := listed(t, 20_000, time.Hour)
	floors.broken.Store(11)
	if _, err := l.floors.look(t.Context()); err == nil {
		t.Fatal("a look whose 11th LIST was refused did not fail")
	}
	if !l.floors.trimmed(9_999) || l.floors.trimmed(10_000) {
		t.Error("the floor is not that of the tenth page")
	}
	floors.broken.Store(0)
	floors.lists.Store(0)
	if _, err := l.floors.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := floors.lists.Load(); got > 11 {
		t.Errorf("the look after it took %d LISTs, want those of the pages that were left", got)
	}
}

// TestTooManyYoungFloors: more floors than any owner raises, all of them young, cost
// a look a bounded number of requests.
func TestTooManyYoungFloors(t *testing.T) {
	l, floors := listed(t, 50_000, time.Minute)
	floors.clock.Advance(2 * realSpans.trust)
	_, err := l.floors.look(t.Context())
	if err == nil || !strings.Contains(err.Error(), "floor/") {
		t.Errorf("a look at 50,000 floors = %v, want an error that names where they are", err)
	}
	if got := floors.lists.Load(); got > 10 {
		t.Errorf("the look took %d LISTs, want at most 10", got)
	}
	if recs, err := l.Read(t.Context(), 5, 1); err == nil {
		t.Errorf("Read = %q without knowing what was trimmed, want an error", recs)
	}
	floors.clock.Advance(time.Hour)
	if _, err := l.Read(t.Context(), 5, 1); !errors.Is(err, journal.ErrTrimmed) {
		t.Errorf("Read once the floors are old = %v, want ErrTrimmed", err)
	}
}

// TestFloorsOfAStoreWithoutStartAfter: a store that lists everything from the
// start, whatever it was asked for, shows the same floor.
func TestFloorsOfAStoreWithoutStartAfter(t *testing.T) {
	l, floors := listed(t, 10_000, time.Hour)
	floors.deaf = true
	for range 2 {
		if floor, err := l.floors.look(t.Context()); err != nil || floor != 10_000 {
			t.Errorf("the floor is %d, %v; want 10000", floor, err)
		}
	}
}

// TestFloorThatIsNotListed: a listing from the known floor on that lacks that
// floor, and has none above it, is not believed: all floors are listed again.
func TestFloorThatIsNotListed(t *testing.T) {
	l, floors := listed(t, 1_500, time.Hour)
	if _, err := l.floors.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	floors.n = 1_000 // somebody deleted the highest floors
	floors.lists.Store(0)
	if floor, err := l.floors.look(t.Context()); err != nil || floor != 1_500 {
		t.Errorf("the floor is %d, %v; want 1500, from which it never falls", floor, err)
	}
	if got := floors.lists.Load(); got != 2 {
		t.Errorf("the look took %d LISTs, want one from the known floor on and one from the start", got)
	}
}
