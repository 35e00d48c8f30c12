package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const widgets = "widgets.a"

func widget(id string, l *ledger, hard int64) error {
	return l.reserve(id, flight{Server: "A", Resource: widgets, Version: "v1", Seconds: 10}, hard, false)
}

// A flight that another gateway has settled may have landed after our own list
// began: it counts on top of it.
func TestRecountCountsWhatOthersSettled(t *testing.T) {
	l := newLedger("b")
	if err := l.recount(recount{Resource: widgets, Born: "b"}); err != nil {
		t.Fatal(err)
	}
	if err := widget("f", l, 5); err != nil {
		t.Fatal(err)
	}
	ours := recount{Resource: widgets, Born: "b", Landed: l.Counts[widgets].Landed, Listed: 0} // listed before f landed
	theirs := recount{Resource: widgets, Born: "b", Landed: l.Counts[widgets].Landed, Listed: 1, Lapsed: []string{"f"}}
	if err := l.recount(theirs); err != nil {
		t.Fatal(err)
	}
	if err := l.recount(ours); err != nil {
		t.Fatal(err)
	}
	if c := l.Counts[widgets]; c.Used < 1 || c.Exact {
		t.Errorf("one exists, and the count is %+v", c)
	}
}

// A finalizer that was seen before it was taken off does not count as being on.
func TestHoldSeesThatAFinalizerWasTakenOff(t *testing.T) {
	l := newLedger("b")
	if err := l.hold("A", "b", 0); err != nil {
		t.Fatal(err)
	}
	before := l.Left // read by who then sees the finalizer on
	if err := l.leave("A", "b", 0); err != nil {
		t.Fatal(err)
	}
	if err := l.hold("A", "b", before); !errors.Is(err, errLeaving) {
		t.Errorf("hold while it leaves: %v", err)
	}
	if err := l.left("A", "b", before); err != nil {
		t.Fatal(err)
	}
	if err := l.hold("A", "b", before); !errors.Is(err, errStale) {
		t.Errorf("hold after it has left: %v", err)
	}
}

// Who ended a leave long ago must not end another that began since.
func TestLeftIsOfOneLeave(t *testing.T) {
	l := newLedger("b")
	for range 2 {
		if err := l.hold("A", "b", l.Left); err != nil {
			t.Fatal(err)
		}
		if err := l.leave("A", "b", 0); err != nil {
			t.Fatal(err)
		}
		if l.Left == 0 {
			if err := l.left("A", "b", 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.left("A", "b", 0); !errors.Is(err, errStale) || l.Held["A"] != leaving {
		t.Errorf("%v, and A is %q", err, l.Held["A"])
	}
}

func TestReserve(t *testing.T) {
	for name, test := range map[string]struct {
		ledger ledger
		hard   int64
		must   bool
		want   error
	}{
		"nothing set":            {hard: noLimit},
		"room":                   {ledger: ledger{Counts: map[string]count{widgets: {Counted: true, Used: 1}}}, hard: 2},
		"used up":                {ledger: ledger{Counts: map[string]count{widgets: {Counted: true, Used: 2}}}, hard: 2, want: errExceeded},
		"more than all":          {ledger: ledger{Counts: map[string]count{widgets: {Counted: true, Used: 3}}}, hard: 2, want: errExceeded},
		"none at all":            {ledger: ledger{Counts: map[string]count{widgets: {Counted: true}}}, hard: 0, want: errExceeded},
		"not counted":            {hard: 2, want: errUncounted},
		"closed":                 {ledger: ledger{Closed: true}, hard: noLimit, want: errClosed},
		"no finalizer":           {hard: noLimit, must: true, want: errNotHeld},
		"finalizer of another":   {ledger: ledger{Held: map[string]holding{"B": held}}, hard: noLimit, must: true, want: errNotHeld},
		"finalizer on":           {ledger: ledger{Held: map[string]holding{"A": held}}, hard: noLimit, must: true},
		"finalizer about to go":  {ledger: ledger{Held: map[string]holding{"A": leaving}}, hard: noLimit, must: true, want: errLeaving},
		"closed before no quota": {ledger: ledger{Closed: true}, hard: 0, want: errClosed},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger("b")
			l.Closed = test.ledger.Closed
			maps.Copy(l.Held, test.ledger.Held)
			maps.Copy(l.Counts, test.ledger.Counts)
			before := l.clone()
			f := flight{Server: "A", Resource: widgets, Seconds: 10}
			err := l.reserve("f", f, test.hard, test.must)
			if !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
				t.Fatalf("%v, want %v", err, test.want)
			}
			if err != nil {
				if diff := cmp.Diff(before, l); diff != "" {
					t.Errorf("refused, and changed:\n%s", diff)
				}
				return
			}
			once := l.clone()
			if err := l.reserve("f", f, test.hard, test.must); err != nil {
				t.Errorf("the same again: %v", err)
			}
			if diff := cmp.Diff(once, l); diff != "" {
				t.Errorf("reserved twice:\n%s", diff)
			}
			l.returned("f")
			l.returned("f")
			if l.Counts[widgets].Used != before.Counts[widgets].Used || len(l.Flights) != 0 {
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
		{noLimit, 0, maxUserFlights, maxUserFlights}, {1 << 40, 0, maxUserFlights, maxUserFlights},
	} {
		l := newLedger("b")
		if c.hard != noLimit {
			l.Counts[widgets] = count{Counted: true, Used: c.exist}
		}
		places := func(who string) int {
			for n := 0; ; n++ {
				err := l.reserve(fmt.Sprintf("%s-%d", who, n), flight{Server: "A", Resource: widgets, Seconds: 10, User: userKey(who)}, c.hard, false)
				if err == nil {
					continue
				}
				if !errors.Is(err, errShare) && !errors.Is(err, errExceeded) {
					t.Fatalf("%+v: %v", c, err)
				}
				return n
			}
		}
		ann, bob := places("ann"), places("bob")
		if ann != c.ann || bob != c.bob {
			t.Errorf("of %d places of which %d are used, ann gets %d and bob %d; want %d and %d", c.hard, c.exist, ann, bob, c.ann, c.bob)
		}
		for id := range l.clone().Flights {
			l.returned(id)
		}
		if again := places("ann"); again != c.ann {
			t.Errorf("after all were given back, ann gets %d of %d", again, c.ann)
		}
	}
}

func TestCrowdedLedgerFitsAConfigMap(t *testing.T) {
	l := newLedger("b")
	long := slices.Repeat([]byte("x"), 253)
	for i := 0; ; i++ {
		id := string([]rune{rune('a' + i%26), rune('a' + i/26%26), rune('a' + i/676)}) + "-ZPLVYLHMGV6AJWWS6XKMD4"
		f := flight{Server: string(long[:63]), Resource: string(long[:63]) + "." + string(long[:63]), Version: "v1", Seconds: 120, By: string(long[:63]), User: userKey(fmt.Sprint(i % 20))}
		if err := l.reserve(id, f, noLimit, false); err != nil {
			if !errors.Is(err, errCrowded) || i < 1000 {
				t.Fatalf("after %d: %v", i, err)
			}
			break
		}
	}
	if n := len(l.encode()); n > 1<<20 {
		t.Errorf("the ledger takes %d bytes; a ConfigMap holds 1 MiB", n)
	}
}

func FuzzParseLedger(f *testing.F) {
	l := newLedger("b")
	_ = l.hold("A", "b", 0)
	_ = l.recount(recount{Resource: widgets, Born: "b", Listed: 3})
	_ = widget("f", l, 9)
	f.Add(l.encode())
	f.Add(`{"born":"b","counts":null,"flights":null,"held":null}`)
	f.Add(`{"born":"b","counts":{"widgets.a":{"counted":true,"used":-1}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		l, err := parseLedger(text)
		if err != nil {
			return
		}
		again, err := parseLedger(l.encode())
		if err != nil {
			t.Fatalf("what was read and written is not read: %v", err)
		}
		if diff := cmp.Diff(l, again); diff != "" {
			t.Fatal(diff)
		}
		_ = widget("new", l, 9)
		l.landed("new")
		if _, err := parseLedger(l.encode()); err != nil {
			t.Fatalf("a create broke it: %v", err)
		}
	})
}

// A create that lands later than a server may is found by the next list, and
// nothing more gets in.
func TestALateLanderIsFound(t *testing.T) {
	l := newLedger("b")
	list := func(n int64, lapsed ...string) {
		t.Helper()
		if err := l.recount(recount{Resource: widgets, Born: "b", Landed: l.Counts[widgets].Landed, Listed: n, Lapsed: lapsed}); err != nil {
			t.Fatal(err)
		}
	}
	list(0)
	if err := widget("late", l, 1); err != nil {
		t.Fatal(err)
	}
	list(0, "late") // it has lapsed, and not landed
	if err := widget("next", l, 1); err != nil {
		t.Fatalf("the place of what lapsed: %v", err)
	}
	l.landed("next")
	list(2) // now it has
	if c := l.Counts[widgets]; c.Used != 2 {
		t.Errorf("two exist, and the count is %+v", c)
	}
	if err := widget("more", l, 1); !errors.Is(err, errExceeded) {
		t.Errorf("one more over the limit: %v", err)
	}
}
