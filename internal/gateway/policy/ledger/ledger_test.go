package ledger

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const widgets = "widgets.a"

func widget(id string, l *Ledger, hard int64) error {
	return l.Reserve(id, Create{Server: "A", Resource: widgets, Version: "v1", Seconds: 10}, hard, false)
}

// A create that another gateway has ended may have landed after our own list
// began, so it counts in addition to the list.
func TestRecountCountsWhatOthersEnded(t *testing.T) {
	l := New("b")
	if err := l.Recount(List{Resource: widgets, Born: "b"}); err != nil {
		t.Fatal(err)
	}
	if err := widget("f", l, 5); err != nil {
		t.Fatal(err)
	}
	ours := List{Resource: widgets, Born: "b", Landed: l.Counts[widgets].Landed, Objects: 0} // listed before f landed
	theirs := List{Resource: widgets, Born: "b", Landed: l.Counts[widgets].Landed, Objects: 1, Expired: []string{"f"}}
	if err := l.Recount(theirs); err != nil {
		t.Fatal(err)
	}
	if err := l.Recount(ours); err != nil {
		t.Fatal(err)
	}
	if c := l.Counts[widgets]; c.Used < 1 || c.Exact {
		t.Errorf("one exists, and the count is %+v", c)
	}
}

// A finalizer that was seen before it was taken off does not count as being on.
func TestHoldSeesThatAFinalizerWasTakenOff(t *testing.T) {
	l := New("b")
	if err := l.Hold("A", "b", 0); err != nil {
		t.Fatal(err)
	}
	before := l.Released // read by a gateway that then sees the finalizer
	if err := l.BeginRelease("A", "b", 0); err != nil {
		t.Fatal(err)
	}
	if err := l.Hold("A", "b", before); !errors.Is(err, ErrReleasing) {
		t.Errorf("hold while it is released: %v", err)
	}
	if err := l.EndRelease("A", "b", before); err != nil {
		t.Fatal(err)
	}
	if err := l.Hold("A", "b", before); !errors.Is(err, ErrStale) {
		t.Errorf("hold after it was released: %v", err)
	}
}

// A gateway that ended one release must not end another that began since.
func TestEndReleaseIsOfOneRelease(t *testing.T) {
	l := New("b")
	for range 2 {
		if err := l.Hold("A", "b", l.Released); err != nil {
			t.Fatal(err)
		}
		if err := l.BeginRelease("A", "b", 0); err != nil {
			t.Fatal(err)
		}
		if l.Released == 0 {
			if err := l.EndRelease("A", "b", 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.EndRelease("A", "b", 0); !errors.Is(err, ErrStale) || l.Held["A"] != Releasing {
		t.Errorf("%v, and A is %q", err, l.Held["A"])
	}
}

func TestReserve(t *testing.T) {
	for name, test := range map[string]struct {
		ledger Ledger
		hard   int64
		must   bool
		want   error
	}{
		"nothing set":            {hard: NoLimit},
		"room":                   {ledger: Ledger{Counts: map[string]Count{widgets: {Counted: true, Used: 1}}}, hard: 2},
		"used up":                {ledger: Ledger{Counts: map[string]Count{widgets: {Counted: true, Used: 2}}}, hard: 2, want: ErrExceeded},
		"more than all":          {ledger: Ledger{Counts: map[string]Count{widgets: {Counted: true, Used: 3}}}, hard: 2, want: ErrExceeded},
		"none at all":            {ledger: Ledger{Counts: map[string]Count{widgets: {Counted: true}}}, hard: 0, want: ErrExceeded},
		"not counted":            {hard: 2, want: ErrUncounted},
		"closed":                 {ledger: Ledger{Draining: true}, hard: NoLimit, want: ErrDraining},
		"no finalizer":           {hard: NoLimit, must: true, want: ErrNotHeld},
		"finalizer of another":   {ledger: Ledger{Held: map[string]Hold{"B": Held}}, hard: NoLimit, must: true, want: ErrNotHeld},
		"finalizer on":           {ledger: Ledger{Held: map[string]Hold{"A": Held}}, hard: NoLimit, must: true},
		"finalizer about to go":  {ledger: Ledger{Held: map[string]Hold{"A": Releasing}}, hard: NoLimit, must: true, want: ErrReleasing},
		"closed before no quota": {ledger: Ledger{Draining: true}, hard: 0, want: ErrDraining},
	} {
		t.Run(name, func(t *testing.T) {
			l := New("b")
			l.Draining = test.ledger.Draining
			maps.Copy(l.Held, test.ledger.Held)
			maps.Copy(l.Counts, test.ledger.Counts)
			before := l.Clone()
			f := Create{Server: "A", Resource: widgets, Seconds: 10}
			err := l.Reserve("f", f, test.hard, test.must)
			if !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
				t.Fatalf("%v, want %v", err, test.want)
			}
			if err != nil {
				if diff := cmp.Diff(before, l); diff != "" {
					t.Errorf("refused, and changed:\n%s", diff)
				}
				return
			}
			once := l.Clone()
			if err := l.Reserve("f", f, test.hard, test.must); err != nil {
				t.Errorf("the same again: %v", err)
			}
			if diff := cmp.Diff(once, l); diff != "" {
				t.Errorf("reserved twice:\n%s", diff)
			}
			l.Failed("f")
			l.Failed("f")
			if l.Counts[widgets].Used != before.Counts[widgets].Used || len(l.Pending) != 0 {
				t.Errorf("after it was given back: %+v", l)
			}
		})
	}
}

// TestNobodyHoldsAllPlaces: whatever becomes of one user's creates, others find
// places, as long as there are two.
func TestNobodyHoldsAllPlaces(t *testing.T) {
	for _, c := range []struct {
		hard, exist int64
		ann, bob    int // places that each gets, one after the other
	}{
		{4, 0, 2, 2}, {5, 0, 3, 2}, {2, 0, 1, 1}, {10, 8, 1, 1}, {1, 0, 1, 0}, {4, 4, 0, 0},
		{NoLimit, 0, maxUserPending, maxUserPending}, {1 << 40, 0, maxUserPending, maxUserPending},
	} {
		l := New("b")
		if c.hard != NoLimit {
			l.Counts[widgets] = Count{Counted: true, Used: c.exist}
		}
		places := func(who string) int {
			for n := 0; ; n++ {
				err := l.Reserve(fmt.Sprintf("%s-%d", who, n), Create{Server: "A", Resource: widgets, Seconds: 10, User: UserKey(who)}, c.hard, false)
				if err == nil {
					continue
				}
				if !errors.Is(err, ErrShare) && !errors.Is(err, ErrExceeded) {
					t.Fatalf("%+v: %v", c, err)
				}
				return n
			}
		}
		ann, bob := places("ann"), places("bob")
		if ann != c.ann || bob != c.bob {
			t.Errorf("of %d places of which %d are used, ann gets %d and bob %d; want %d and %d", c.hard, c.exist, ann, bob, c.ann, c.bob)
		}
		for id := range l.Clone().Pending {
			l.Failed(id)
		}
		if again := places("ann"); again != c.ann {
			t.Errorf("after all were given back, ann gets %d of %d", again, c.ann)
		}
	}
}

func TestCrowdedLedgerFitsAConfigMap(t *testing.T) {
	l := New("b")
	long := slices.Repeat([]byte("x"), 253)
	for i := 0; ; i++ {
		id := string([]rune{rune('a' + i%26), rune('a' + i/26%26), rune('a' + i/676)}) + "-ZPLVYLHMGV6AJWWS6XKMD4"
		f := Create{Server: string(long[:63]), Resource: string(long[:63]) + "." + string(long[:63]), Version: "v1", Seconds: 120, By: string(long[:63]), User: UserKey(fmt.Sprint(i % 20))}
		if err := l.Reserve(id, f, NoLimit, false); err != nil {
			if !errors.Is(err, ErrCrowded) || i < 1000 {
				t.Fatalf("after %d: %v", i, err)
			}
			break
		}
	}
	if n := len(l.Encode()); n > 1<<20 {
		t.Errorf("the ledger takes %d bytes; a ConfigMap holds 1 MiB", n)
	}
}

func FuzzParseLedger(f *testing.F) {
	l := New("b")
	_ = l.Hold("A", "b", 0)
	_ = l.Recount(List{Resource: widgets, Born: "b", Objects: 3})
	_ = widget("f", l, 9)
	f.Add(l.Encode())
	f.Add(`{"born":"b","counts":null,"flights":null,"held":null}`)
	f.Add(`{"born":"b","counts":{"widgets.a":{"counted":true,"used":-1}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		l, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(l.Encode())
		if err != nil {
			t.Fatalf("what was read and written is not read: %v", err)
		}
		if diff := cmp.Diff(l, again); diff != "" {
			t.Fatal(diff)
		}
		_ = widget("new", l, 9)
		l.Landed("new")
		if _, err := Parse(l.Encode()); err != nil {
			t.Fatalf("a create broke it: %v", err)
		}
	})
}

// A create that lands later than a server may is found by the next list, and
// nothing more gets in.
func TestALateLanderIsFound(t *testing.T) {
	l := New("b")
	list := func(n int64, expired ...string) {
		t.Helper()
		if err := l.Recount(List{Resource: widgets, Born: "b", Landed: l.Counts[widgets].Landed, Objects: n, Expired: expired}); err != nil {
			t.Fatal(err)
		}
	}
	list(0)
	if err := widget("late", l, 1); err != nil {
		t.Fatal(err)
	}
	list(0, "late") // it has expired, and not landed
	if err := widget("next", l, 1); err != nil {
		t.Fatalf("the place of the create that expired: %v", err)
	}
	l.Landed("next")
	list(2) // now it has
	if c := l.Counts[widgets]; c.Used != 2 {
		t.Errorf("two exist, and the count is %+v", c)
	}
	if err := widget("more", l, 1); !errors.Is(err, ErrExceeded) {
		t.Errorf("one more over the limit: %v", err)
	}
}
