package access_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/record"
	"github.com/xbernetes/xbernetes/internal/replica/access"
	"github.com/xbernetes/xbernetes/internal/replica/stats"
)

var errNoAnswer = errors.New("no answer")

// flaky is a journal whose first calls go wrong.
type flaky struct {
	journal.Store
	appends []func(slot journal.Slot, rec []byte) error // in place of the first Appends
	reads   []error                                     // of the first Reads
}

func (f *flaky) Append(ctx context.Context, slot journal.Slot, rec []byte) error {
	if len(f.appends) > 0 {
		next := f.appends[0]
		f.appends = f.appends[1:]
		return next(slot, rec)
	}
	return f.Store.Append(ctx, slot, rec)
}

func (f *flaky) Read(ctx context.Context, from journal.Slot, limit int) ([][]byte, error) {
	if len(f.reads) > 0 {
		next := f.reads[0]
		f.reads = f.reads[1:]
		return nil, next
	}
	return f.Store.Read(ctx, from, limit)
}

func open(store journal.Store) *access.Access {
	return access.New(access.Config{Store: store, Name: "test", Timeout: 7 * time.Second, Attempt: 15 * time.Second, Logger: slog.New(slog.DiscardHandler), Counts: &stats.New().Calls})
}

// TestAppend: whatever becomes of the attempts, the result says which record holds the
// slot, and nothing is appended again before the slot was seen to be empty.
func TestAppend(t *testing.T) {
	type step = func(journal.Slot, []byte) error
	for _, c := range []struct {
		name  string
		steps func(j journal.Store) []step
		reads []error
		want  access.Appended
		holds string // the record in the slot in the end
	}{
		{"stored", nil, nil, access.Appended{}, "ours"},
		{"taken", func(j journal.Store) []step {
			return []step{func(slot journal.Slot, rec []byte) error {
				return errors.Join(journal.ErrTaken, j.Append(t.Context(), slot, []byte("another's")))
			}}
		}, nil, access.Appended{Taken: true}, "another's"},
		{"ahead, and then stored", func(journal.Store) []step {
			return []step{func(journal.Slot, []byte) error { return journal.ErrAhead }}
		}, []error{errNoAnswer}, access.Appended{}, "ours"},
		{"failed, and then stored", func(journal.Store) []step {
			return []step{func(journal.Slot, []byte) error { return errNoAnswer }}
		}, []error{errNoAnswer, errNoAnswer}, access.Appended{}, "ours"},
		{"failed but applied", func(j journal.Store) []step {
			return []step{
				func(slot journal.Slot, rec []byte) error {
					return errors.Join(errNoAnswer, j.Append(t.Context(), slot, rec))
				},
				func(journal.Slot, []byte) error { t.Error("appended again"); return nil },
			}
		}, []error{errNoAnswer}, access.Appended{}, "ours"},
		{"failed, and another record took the slot", func(j journal.Store) []step {
			return []step{
				func(slot journal.Slot, rec []byte) error {
					return errors.Join(errNoAnswer, j.Append(t.Context(), slot, []byte("another's")))
				},
				func(journal.Slot, []byte) error { t.Error("appended again"); return nil },
			}
		}, nil, access.Appended{Taken: true}, "another's"},
		{"failed, and the slot was trimmed", func(journal.Store) []step {
			return []step{func(journal.Slot, []byte) error { return errNoAnswer }}
		}, []error{journal.ErrTrimmed}, access.Appended{Err: journal.ErrTrimmed}, ""},
		{"too large", func(journal.Store) []step {
			return []step{func(journal.Slot, []byte) error { return journal.ErrTooLarge }}
		}, nil, access.Appended{Err: journal.ErrTooLarge}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &flaky{Store: memlog.New(memlog.Options{}).Open(), reads: c.reads}
				if c.steps != nil {
					f.appends = c.steps(f.Store)
				}
				got, err := open(f).Append(t.Context(), 1, []byte("ours"))
				if err != nil || got != c.want {
					t.Errorf("%+v, %v, want %+v", got, err, c.want)
				}
				recs, err := f.Store.Read(t.Context(), 1, 1)
				if held := ""; err != nil {
					t.Error(err)
				} else {
					if len(recs) > 0 {
						held = string(recs[0])
					}
					if held != c.holds {
						t.Errorf("the slot holds %q, want %q", held, c.holds)
					}
				}
			})
		})
	}
}

// TestNeverHeld: an empty slot was held if a record above it is anchored there or later.
func TestNeverHeld(t *testing.T) {
	for anchor, want := range map[journal.Slot]error{0: nil, 1: nil, 2: access.ErrLost, 3: access.ErrLost} {
		store := memlog.New(memlog.Options{Depth: 8}).Open()
		head := record.Header{Journal: store.Info().ID, Writer: 9, Kind: record.Batch, Anchor: anchor}
		if err := store.Append(t.Context(), 5, record.Append(nil, &head, []byte{0}, false)); err != nil {
			t.Fatal(err)
		}
		a := open(store)
		if err := a.NeverHeld(t.Context(), 2, 8); !errors.Is(err, want) {
			t.Errorf("below a record with the anchor %d: %v, want %v", anchor, err, want)
		}
		if err := a.NeverHeld(t.Context(), 2, 2); err != nil {
			t.Errorf("of a record out of reach: %v", err)
		}
	}
}

// TestOutage: a call that fails for long is an outage of its lane until it is answered.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := open(memlog.New(memlog.Options{}).Open())
		writes := a.Begin(access.Append)
		for range 20 {
			if err := writes.Pause(t.Context(), errNoAnswer); err != nil {
				t.Fatal(err)
			}
		}
		if o, _ := a.Writes().State(); o == nil || !errors.Is(o.Cause, errNoAnswer) {
			t.Errorf("while an Append fails the outage of writes is %v", o)
		}
		if o, _ := a.Reads().State(); o != nil {
			t.Errorf("while an Append fails the outage of reads is %v", o)
		}
		reads := a.Begin(access.Read)
		time.Sleep(8 * time.Second)
		if o, _ := a.Reads().State(); o == nil {
			t.Error("a Read has had no answer for 8 s, and there is no outage")
		}
		writes.End()
		reads.End()
		for name, lane := range map[string]*access.Lane{"reads": a.Reads(), "writes": a.Writes()} {
			if o, _ := lane.State(); o != nil {
				t.Errorf("after all calls ended the outage of %s is %v", name, o)
			}
		}
	})
}
