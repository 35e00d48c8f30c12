package replica_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/replica"
)

// moody is a store that fails as it is told to.
type moody struct {
	journal.Store
	noReads, noAppends atomic.Bool
	silent             atomic.Bool // and does not even fail
	mute               atomic.Bool // the next append has no answer
}

var errRefused = errors.New("connection refused")

func (m *moody) Append(ctx context.Context, slot journal.Slot, rec []byte) error {
	if m.noAppends.Load() {
		return errRefused
	}
	if m.mute.CompareAndSwap(true, false) {
		<-ctx.Done()
		return ctx.Err()
	}
	return m.Store.Append(ctx, slot, rec)
}

func (m *moody) Read(ctx context.Context, from journal.Slot, limit int) ([][]byte, error) {
	if m.silent.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if m.noReads.Load() {
		return nil, errRefused
	}
	return m.Store.Read(ctx, from, limit)
}

// withMoody runs f with a replica, its store, and what it logged, in a bubble.
func withMoody(t *testing.T, f func(t *testing.T, r *replica.Replica, m *moody, log *strings.Builder)) {
	synctest.Test(t, func(t *testing.T) {
		m := &moody{Store: memlog.New(memlog.Options{}).Open()}
		var log strings.Builder
		r := run(t, m, func(cfg *replica.Config) {
			cfg.Name = "s3://bucket/prefix"
			cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		f(t, r, m, &log)
	})
}

// wantOutage fails unless err tells of an outage and is outcome.
func wantOutage(t *testing.T, what string, err, outcome error) {
	t.Helper()
	var o *replica.Outage
	if !errors.Is(err, outcome) || !errors.As(err, &o) || o.Journal != "s3://bucket/prefix" {
		t.Errorf("%s: %v, want %v and the outage", what, err, outcome)
	}
}

// Requests that meet an outage fail within seconds, and say which journal is
// away and why. A write that is on its way is unknown; any later one was not made.
func TestOutageIsTold(t *testing.T) {
	withMoody(t, func(t *testing.T, r *replica.Replica, m *moody, log *strings.Builder) {
		propose(t, r, put("k", "1"))
		m.noReads.Store(true)
		m.noAppends.Store(true)
		began := time.Now()
		flying := make(chan error, 1)
		go func() {
			_, err := r.Propose(t.Context(), put("k", "2"))
			flying <- err
		}()
		_, err := r.Linearizable(t.Context())
		wantOutage(t, "read", err, replica.ErrUnavailable)
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("the read took %v", took)
		}
		began = time.Now()
		for range 1000 {
			_, err = r.Linearizable(t.Context())
			wantOutage(t, "read in an outage", err, replica.ErrUnavailable)
			_, err = r.Propose(t.Context(), put("k", "3"))
			wantOutage(t, "write in an outage", err, replica.ErrUnavailable)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("requests in a known outage took %v", took)
		}
		wantOutage(t, "write on its way", <-flying, replica.ErrUnknown)
		time.Sleep(time.Hour)
		if o := r.Outage(); o == nil || !errors.Is(o.Cause, errRefused) {
			t.Errorf("after an hour the outage is %v", o)
		}

		m.noReads.Store(false)
		m.noAppends.Store(false)
		time.Sleep(2 * time.Second)
		if o := r.Outage(); o != nil {
			t.Fatalf("the journal is back, and the replica says %v", o)
		}
		if v, err := r.Linearizable(t.Context()); err != nil || string(v.Get("k").Value) != "2" {
			t.Errorf("the write that was on its way: %+v, %v", v, err)
		}
		if lines := strings.Split(strings.TrimSpace(log.String()), "\n"); len(lines) != 2 ||
			!strings.Contains(lines[0], "journal does not answer") || !strings.Contains(lines[0], "refused") ||
			!strings.Contains(lines[1], "journal answers again") {
			t.Errorf("an hour's outage is logged as:\n%s", log)
		}
	})
}

// A journal that takes no writes is read on.
func TestOutageOfWritesAlone(t *testing.T) {
	withMoody(t, func(t *testing.T, r *replica.Replica, m *moody, log *strings.Builder) {
		propose(t, r, put("k", "1"))
		m.noAppends.Store(true)
		_, err := r.Propose(t.Context(), put("k", "2"))
		wantOutage(t, "first write", err, replica.ErrUnknown)
		_, err = r.Propose(t.Context(), put("k", "3"))
		wantOutage(t, "second write", err, replica.ErrUnavailable)
		if want := "journal s3://bucket/prefix takes no writes since"; !strings.Contains(err.Error(), want) || !strings.Contains(log.String(), "journal takes no writes") {
			t.Errorf("second write: %v, want one that says %q; the log has\n%s", err, want, log)
		}
		if v, err := r.Linearizable(t.Context()); err != nil || string(v.Get("k").Value) != "1" {
			t.Errorf("read: %+v, %v", v, err)
		}
	})
}

// A single append without an answer is not an outage: other requests go on.
func TestOneSilentAppendIsNoOutage(t *testing.T) {
	withMoody(t, func(t *testing.T, r *replica.Replica, m *moody, log *strings.Builder) {
		propose(t, r, put("k", "1"))
		m.mute.Store(true)
		asked := make(chan error, 1)
		go func() {
			_, err := r.Propose(t.Context(), put("k", "2"))
			asked <- err
		}()
		for range 20 {
			time.Sleep(time.Second)
			if o := r.Outage(); o != nil {
				t.Fatal(o)
			}
		}
		if err := <-asked; !errors.Is(err, replica.ErrUnknown) {
			t.Errorf("the write that had no answer: %v", err)
		}
		propose(t, r, put("k", "3"))
		if log.Len() > 0 {
			t.Errorf("the log has\n%s", log)
		}
	})
}

// A journal that is silent is an outage after the time of a request; one that is
// slow, but answers, is none.
func TestOutageOfSilence(t *testing.T) {
	withMoody(t, func(t *testing.T, r *replica.Replica, m *moody, log *strings.Builder) {
		m.silent.Store(true)
		began := time.Now()
		_, err := r.Linearizable(t.Context())
		if !errors.Is(err, replica.ErrUnavailable) || time.Since(began) > 8*time.Second {
			t.Errorf("read of a silent journal: %v after %v", err, time.Since(began))
		}
		time.Sleep(time.Second)
		_, err = r.Linearizable(t.Context())
		wantOutage(t, "read in silence", err, replica.ErrUnavailable)
		m.silent.Store(false)
		time.Sleep(20 * time.Second)
		if _, err := r.Linearizable(t.Context()); err != nil {
			t.Errorf("read after the silence: %v\n%s", err, log)
		}
	})
}

// A replica that stops during an outage does not say that the journal is back.
func TestOutageAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &moody{Store: memlog.New(memlog.Options{}).Open()}
		var log strings.Builder
		r, stop := start(t, m, func(cfg *replica.Config) { cfg.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		m.noReads.Store(true)
		time.Sleep(10 * time.Second)
		if r.Outage() == nil {
			t.Error("there is no outage")
		}
		stop()
		if strings.Contains(log.String(), "answers again") {
			t.Errorf("a replica that was stopped logged:\n%s", log.String())
		}
	})
}
