package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/faultlog"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/replica"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// Machine runs one server after another. While it sleeps, none of its requests reaches
// the store and none of the answers reaches it, so that it learns nothing of the time
// that passes there.
type Machine struct {
	N    int // from 0
	w    *world
	dice *rand.Rand // of what befalls the machine; its own goroutine's

	mu    sync.Mutex
	awake chan struct{} // closed while the machine is awake; guarded by mu

	now atomic.Pointer[replica.Replica] // the server that runs; nil: none
}

// Await waits until the machine is awake. It returns false if ctx ends first.
func (m *Machine) Await(ctx context.Context) bool {
	m.mu.Lock()
	awake := m.awake
	m.mu.Unlock()
	select {
	case <-awake:
		return true
	case <-ctx.Done():
		return false
	}
}

func (m *Machine) sleep() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.awake = make(chan struct{})
}

func (m *Machine) wake() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.awake)
}

// serve keeps a server running on the machine until the history ends. If the server is
// killed, or ends because slots that it needs are gone, another one is started.
func (m *Machine) serve() error {
	for run := uint64(0); m.w.ctx.Err() == nil; run++ {
		life, kill := context.WithTimeout(m.w.ctx, time.Duration(100+m.dice.IntN(3000))*time.Millisecond)
		err := m.once(life, run)
		killed := life.Err() != nil
		kill()
		switch {
		case killed:
		case errors.Is(err, journal.ErrTrimmed):
			m.w.count(func(t *Tally) { t.Left++ })
		case err != nil:
			return fmt.Errorf("machine %d: server %d ended: %w", m.N, run, err)
		}
	}
	return nil
}

// once runs one server.
func (m *Machine) once(ctx context.Context, run uint64) error {
	log, err := m.open(ctx)
	if err != nil {
		return err
	}
	faulty, err := faultlog.New(counted{log, m.w}, faultlog.Config{
		Seed: m.w.cfg.Seed + uint64(m.N)<<32 + run + 1,
		Fail: 0.03, FailApplied: 0.05, Late: 0.08, FalseTaken: 0.02, MaxLate: 200 * time.Millisecond,
		Delay: 0.2, MaxDelay: 3 * time.Millisecond, ReadFail: 0.03, WriteFail: 0.05,
	})
	if err != nil {
		return err
	}
	defer faulty.Close() //nolint:errcheck // it closes what this machine has opened
	r := replica.New(replica.Config{
		Store: faulty, Notifier: notify.NewPolling(10*time.Millisecond, 40*time.Millisecond), Logger: slog.New(slog.DiscardHandler),
		Timeout: 3 * m.w.cfg.Attempt, Attempt: m.w.cfg.Attempt,
		Snapshots: snapshot.Policy{EveryBytes: 3 << 10}, Trim: m.N < 2,
	})
	m.w.count(func(t *Tally) { t.Starts++ })
	m.now.Store(r)
	defer m.now.Store(nil)
	return r.Run(ctx)
}

func (m *Machine) open(ctx context.Context) (journal.Store, error) {
	if m.w.cfg.OpenAt != nil {
		return m.w.cfg.OpenAt(ctx, m)
	}
	log, err := m.w.cfg.Open(ctx)
	if err != nil {
		return nil, err
	}
	return gated{log, m}, nil
}

// gated is a journal on which no Append and no Read begins or ends while the machine
// sleeps.
type gated struct {
	journal.Store
	m *Machine
}

func (g gated) Append(ctx context.Context, slot journal.Slot, rec []byte) error {
	if !g.m.Await(ctx) {
		return ctx.Err()
	}
	err := g.Store.Append(ctx, slot, rec)
	if !g.m.Await(ctx) {
		return ctx.Err()
	}
	return err
}

func (g gated) Read(ctx context.Context, from journal.Slot, limit int) ([][]byte, error) {
	if !g.m.Await(ctx) {
		return nil, ctx.Err()
	}
	recs, err := g.Store.Read(ctx, from, limit)
	if !g.m.Await(ctx) {
		return nil, ctx.Err()
	}
	return recs, err
}

// counted counts the slots that are deleted.
type counted struct {
	journal.Store
	w *world
}

func (c counted) Trim(ctx context.Context, before journal.Slot) (int, error) {
	n, err := c.Store.Trim(ctx, before)
	c.w.count(func(t *Tally) { t.Deleted += n })
	return n, err
}
