package objectlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/frame"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/objecttest"
)

// under opens a journal behind a handler whose plan starts once it is open.
func under(t *testing.T, plan func(*http.Request) objecttest.Fault) (*Log, *objecttest.Faults, Config) {
	t.Helper()
	f := objecttest.NewFaults(memoryStore(t), objecttest.S3, nil)
	cfg := serve(t, f)
	cfg.RequestTimeout = time.Second
	l := mustOpen(t, cfg)
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
		f.Count(method)
	}
	f.Plan = plan
	return l, f, cfg
}

func wantRead(t *testing.T, l *Log, from journal.Slot, want ...string) {
	t.Helper()
	recs, err := l.Read(t.Context(), from, 100)
	if err != nil {
		t.Fatalf("Read(%d) = %v", from, err)
	}
	var got []string
	for _, rec := range recs {
		got = append(got, string(rec))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("Read(%d) = %q, want %q", from, got, want)
	}
}

// TestAppendUnderFault: whatever happens to the first PUTs, an Append ends
// stored, and stored once.
func TestAppendUnderFault(t *testing.T) {
	for kind := objecttest.Busy; kind <= objecttest.SilentApplied; kind++ {
		for _, times := range []int{1, 3} {
			t.Run(fmt.Sprint(kind, times), func(t *testing.T) {
				t.Parallel()
				if times > 1 && (kind == objecttest.Silent || kind == objecttest.SilentApplied) {
					t.Skip("takes a time-out each")
				}
				l, f, _ := under(t, objecttest.First(http.MethodPut, slotPrefix, slices.Repeat([]objecttest.Fault{kind}, times)...))
				if err := l.Append(t.Context(), 1, []byte("one")); err != nil {
					t.Fatalf("Append = %v, want nil", err)
				}
				if puts := f.Count(http.MethodPut); puts > times+1 {
					t.Errorf("%d PUTs, want at most %d", puts, times+1)
				}
				if err := l.Append(t.Context(), 1, []byte("other")); !errors.Is(err, journal.ErrTaken) {
					t.Errorf("Append over it = %v, want ErrTaken", err)
				}
				if err := l.Append(t.Context(), 2, []byte("two")); err != nil {
					t.Errorf("Append of the next = %v, want nil", err)
				}
				wantRead(t, l, 1, "one", "two")
			})
		}
	}
}

// TestAppendLosesUnderFault: while the first PUT is in trouble and does not
// land, another writer takes the slot.
func TestAppendLosesUnderFault(t *testing.T) {
	for _, kind := range []objecttest.Fault{objecttest.Busy, objecttest.SlowDown, objecttest.Failed, objecttest.Lost, objecttest.LandsLate, objecttest.Silent} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			var rival *Log
			trouble := objecttest.First(http.MethodPut, slotPrefix, objecttest.Pass, kind) // the rival's, then ours
			l, _, cfg := under(t, trouble)
			rival = mustOpen(t, cfg)
			if err := rival.Append(t.Context(), 1, []byte("rival")); err != nil {
				t.Fatal(err)
			}
			if err := l.Append(t.Context(), 1, []byte("ours")); !errors.Is(err, journal.ErrTaken) {
				t.Fatalf("Append = %v, want ErrTaken", err)
			}
			wantRead(t, l, 1, "rival")
			wantRead(t, mustOpen(t, cfg), 1, "rival")
		})
	}
}

// TestAppendUnknown: an Append whose outcome cannot be found out is unknown,
// never a conflict, whether it landed or not.
func TestAppendUnknown(t *testing.T) {
	for name, test := range map[string]struct {
		put    objecttest.Fault // what happens to each PUT of the slot
		get    objecttest.Fault // and to each GET of it
		landed bool
	}{
		"never stored":             {objecttest.SlowDown, objecttest.Pass, false},
		"store gone":               {objecttest.Lost, objecttest.Lost, false},
		"stored, and then no word": {objecttest.LostApplied, objecttest.Lost, true},
		"refused, and then mute":   {objecttest.FailedApplied, objecttest.SlowDown, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var mu sync.Mutex
			seen := 0 // guarded by mu
			l, f, cfg := under(t, nil)
			f.Plan = func(r *http.Request) objecttest.Fault {
				if !strings.Contains(r.URL.Path, slotPrefix) {
					return objecttest.Pass
				}
				mu.Lock()
				defer mu.Unlock()
				if seen++; seen == 10 {
					cancel()
				}
				if r.Method == http.MethodPut {
					return test.put
				}
				return test.get
			}
			err := l.Append(ctx, 1, []byte("one"))
			for _, definite := range []error{journal.ErrTaken, journal.ErrAhead, journal.ErrTooLarge, journal.ErrClosed} {
				if errors.Is(err, definite) {
					t.Errorf("Append = %v, want an unknown outcome", err)
				}
			}
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Append = %v, want what ended it", err)
			}
			again := mustOpen(t, serveAgain(cfg, f))
			if test.landed {
				wantRead(t, again, 1, "one")
			} else {
				wantRead(t, again, 1)
			}
			if err := again.Append(t.Context(), 1, []byte("one")); err != nil {
				t.Errorf("Append of the same bytes again = %v, want nil", err)
			}
			wantRead(t, again, 1, "one")
		})
	}
}

// serveAgain ends the trouble.
func serveAgain(cfg Config, f *objecttest.Faults) Config {
	f.Plan = nil
	return cfg
}

// TestAppendCutOffByClose: Close ends an Append in flight, outcome unknown.
func TestAppendCutOffByClose(t *testing.T) {
	arrived := make(chan struct{}, 1)
	l, _, cfg := under(t, func(r *http.Request) objecttest.Fault {
		if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, slotPrefix) {
			return objecttest.Pass
		}
		arrived <- struct{}{}
		return objecttest.SilentApplied
	})
	outcome := make(chan error)
	go func() { outcome <- l.Append(t.Context(), 1, []byte("one")) }()
	<-arrived
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	err := <-outcome
	if err == nil || errors.Is(err, journal.ErrClosed) || errors.Is(err, journal.ErrTaken) {
		t.Errorf("Append = %v, want an unknown outcome", err)
	}
	wantRead(t, mustOpen(t, cfg), 1, "one")
}

// TestRequestCounts: the common cases cost one request each.
func TestRequestCounts(t *testing.T) {
	l, f, cfg := under(t, nil)
	wantRead(t, l, 1) // the first question also asks for the floor
	f.Count(http.MethodGet)
	for range 5 {
		if recs, err := l.Read(t.Context(), 1, 1); err != nil || len(recs) != 0 {
			t.Fatalf("Read = %d records, %v", len(recs), err)
		}
	}
	if got := f.Count(http.MethodGet); got != 5 {
		t.Errorf("asking 5 times whether a slot is held took %d GETs, want 5", got)
	}
	for slot := journal.Slot(1); slot <= 100; slot++ {
		if err := l.Append(t.Context(), slot, fmt.Append(nil, slot)); err != nil {
			t.Fatal(err)
		}
	}
	if puts, gets := f.Count(http.MethodPut), f.Count(http.MethodGet); puts != 100 || gets != 0 {
		t.Errorf("100 appends took %d PUTs and %d GETs, want 100 and 0", puts, gets)
	}
	late := mustOpen(t, cfg)
	f.Count(http.MethodGet)
	if recs, err := late.Read(t.Context(), 1, 100); err != nil || len(recs) != 100 {
		t.Fatalf("Read = %d records, %v", len(recs), err)
	}
	if got := f.Count(http.MethodGet); got > 100+8 { // a floor for each window
		t.Errorf("reading 100 slots took %d GETs", got)
	}
	if err := late.Append(t.Context(), 100, []byte("lost")); !errors.Is(err, journal.ErrTaken) {
		t.Fatal(err)
	}
	if err := l.Append(t.Context(), 101, []byte("won")); err != nil {
		t.Fatal(err)
	}
	f.Count(http.MethodGet)
	if err := late.Append(t.Context(), 101, []byte("lost")); !errors.Is(err, journal.ErrTaken) {
		t.Fatal(err)
	}
	if recs, err := late.Read(t.Context(), 101, 1); err != nil || len(recs) != 1 || string(recs[0]) != "won" {
		t.Fatalf("Read(101) = %q, %v", recs, err)
	}
	if got := f.Count(http.MethodGet); got != 1 {
		t.Errorf("losing a slot and reading it took %d GETs, want 1", got)
	}
}

// TestReadCorrupt: a stored byte that is wrong is found, wherever it is.
func TestReadCorrupt(t *testing.T) {
	l, _, cfg := under(t, nil)
	record := []byte("the record")
	whole := format.Encode(slotName(1), l.info.ID, record)
	spoilt := map[string][]byte{
		"empty":          {},
		"cut":            whole[:len(whole)-1],
		"longer":         append(bytes.Clone(whole), 0),
		"of a neighbour": format.Encode(slotName(2), l.info.ID, record),
		"of another":     format.Encode(slotName(1), journal.ID{1}, record),
		"too long":       make([]byte, frame.Header+maxRecord+1),
	}
	for i := range whole {
		flipped := bytes.Clone(whole)
		flipped[i] ^= 0x10
		spoilt[fmt.Sprint("bit in byte ", i)] = flipped
	}
	for name, object := range spoilt {
		if err := l.calls.bucket.Put(t.Context(), slotName(1), object); err != nil {
			t.Fatal(err)
		}
		fresh := mustOpen(t, cfg)
		if recs, err := fresh.Read(t.Context(), 1, 1); !errors.Is(err, journal.ErrCorrupt) {
			t.Errorf("%s: Read = %q, %v; want ErrCorrupt", name, recs, err)
		}
		if err := fresh.Append(t.Context(), 1, record); !errors.Is(err, journal.ErrCorrupt) || errors.Is(err, journal.ErrTaken) {
			t.Errorf("%s: Append = %v, want ErrCorrupt", name, err)
		}
	}
}

func TestNoGoroutineIsLeft(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	l, _, _ := under(t, nil)
	for slot := journal.Slot(1); slot <= 20; slot++ {
		if err := l.Append(t.Context(), slot, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Read(t.Context(), 1, 100); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	goleak.VerifyNone(t, ignore, goleak.IgnoreAnyFunction("net/http/httptest.(*Server).goServe.func1"),
		goleak.IgnoreAnyFunction("net/http.(*conn).serve"), goleak.IgnoreAnyFunction("net/http.(*connReader).backgroundRead"))
}
