// Package sim runs several servers on one journal that goes wrong in every way that a
// store, a network and a machine do, and holds what clients and watchers were told
// against the history that is left. It never ships: only tests use it.
//
// Everything that waits does so by package time, so that a history in memory takes no
// time inside a bubble of testing/synctest.
package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/replica"
)

// Machines is how many machines a history has.
const Machines = 3

const clients = 4 // on each machine

// Config is what one history is.
type Config struct {
	// Seed fixes what is done and what goes wrong.
	Seed uint64
	// Writes is how many writes each client tries, beside those that are refused, and
	// Lasts how long the history is at most.
	Writes int
	Lasts  time.Duration
	// Attempt is how long a server waits for one answer of the journal.
	Attempt time.Duration
	// Open opens the journal as an undisturbed machine sees it.
	Open func(context.Context) (journal.Store, error)
	// OpenAt opens it as a machine sees it that sleeps at times; nil: by Open, and no
	// call of the journal begins or ends while the machine sleeps.
	OpenAt func(context.Context, *Machine) (journal.Store, error)
	// Advance moves the store's clock on, or back; nil: the store has none.
	Advance func(time.Duration)
}

// Tally is what histories met.
type Tally struct {
	Acked, Unknown, Refused, Read, Watched, Starts, Sleeps, Left, Deleted, States int
}

// Add adds what another history met.
func (a *Tally) Add(b Tally) {
	a.Acked, a.Unknown, a.Refused, a.Read = a.Acked+b.Acked, a.Unknown+b.Unknown, a.Refused+b.Refused, a.Read+b.Read
	a.Watched, a.Starts = a.Watched+b.Watched, a.Starts+b.Starts
	a.Sleeps, a.Left, a.Deleted, a.States = a.Sleeps+b.Sleeps, a.Left+b.Left, a.Deleted+b.Deleted, a.States+b.States
}

// Void says whether nothing was tried that could have gone wrong.
func (a *Tally) Void() bool { return a.Acked == 0 || a.Read == 0 || a.Watched == 0 || a.Sleeps == 0 }

// change is what a client was told of its write, or a watcher was shown.
type change struct {
	mod        mvcc.Revision
	key, value string
}

// Run runs one history. The error tells every breach of these invariants:
//   - Each acknowledged write is in the history that is left, once, at its revision.
//   - A linearizable read sees every write that was acknowledged before it.
//   - No write is in it whose client was told that it was not made.
//   - Each watch was shown all changes of that history in order, even if it moved from
//     one server to another.
//   - No two replicas differ at the same slot.
//   - A server ends only if it is killed, or if slots that it needs are gone.
//
// Servers are killed; machines sleep, and their clocks with them, while slots that they
// have not read are trimmed; the store's clock runs at a pace of its own, and jumps.
func Run(ctx context.Context, cfg Config) (Tally, error) {
	w := newWorld(ctx, cfg)
	defer w.stop()
	var servers, others errgroup.Group
	for _, m := range w.machines {
		servers.Go(m.serve)
	}
	acked := make([][]change, Machines*clients)
	var writers errgroup.Group
	for c := range acked {
		writers.Go(func() error {
			acked[c] = w.write(w.machines[c%Machines], c, w.dice(100+uint64(c)))
			return nil
		})
	}
	shown := make([][]change, Machines)
	for n, m := range w.machines {
		others.Go(func() error { return w.read(m, w.dice(400+uint64(n))) })
	}
	for i := range shown {
		others.Go(func() (err error) {
			shown[i], err = w.watch(w.dice(200 + uint64(i)))
			return err
		})
	}
	others.Go(func() error { w.disturb(w.dice(300)); return nil })
	for _, m := range w.machines {
		others.Go(func() error { return w.hashes(m) })
	}
	end := time.AfterFunc(cfg.Lasts, w.stop)
	defer end.Stop()
	_ = writers.Wait() // they do not fail
	w.stop()
	err := errors.Join(servers.Wait(), others.Wait(), w.check(ctx, acked, shown))
	return w.tally, err
}

// world is one store, and the machines that use it.
type world struct {
	cfg  Config
	ctx  context.Context // ends when the history does
	stop context.CancelFunc

	machines []*Machine

	mu      sync.Mutex
	states  map[journal.Slot][32]byte // what some replica's state came to; guarded by mu
	refused map[string]bool           // the values of writes that were said not to be made; guarded by mu
	newest  mvcc.Revision             // that was acknowledged; guarded by mu
	tally   Tally                     // guarded by mu
}

func newWorld(ctx context.Context, cfg Config) *world {
	w := &world{cfg: cfg, states: map[journal.Slot][32]byte{}, refused: map[string]bool{}}
	w.ctx, w.stop = context.WithCancel(ctx)
	for n := range Machines {
		m := &Machine{w: w, N: n, dice: w.dice(uint64(n)), awake: make(chan struct{})}
		close(m.awake)
		w.machines = append(w.machines, m)
	}
	return w
}

// dice are one source of chance, which the seed fixes.
func (w *world) dice(n uint64) *rand.Rand { return rand.New(rand.NewPCG(w.cfg.Seed, n)) }

func (w *world) count(f func(*Tally)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&w.tally)
}

// write writes through whichever server runs on a machine, and returns what was
// acknowledged.
func (w *world) write(m *Machine, client int, dice *rand.Rand) (acked []change) {
	tried := 0
	for i := 0; tried < w.cfg.Writes && w.ctx.Err() == nil; i++ {
		r := m.now.Load()
		if r == nil {
			w.pause(time.Millisecond)
			continue
		}
		w.pause(time.Duration(dice.IntN(10)) * time.Millisecond)
		c := change{key: fmt.Sprint("k", dice.IntN(20)), value: fmt.Sprintf("%d.%d", client, i)}
		res, err := r.Propose(w.ctx, &mvcc.Request{Kind: mvcc.Txn, Then: []mvcc.Op{
			{Kind: mvcc.OpPut, Range: mvcc.KeyRange{Key: c.key}, Value: []byte(c.value)}}})
		switch {
		case errors.Is(err, replica.ErrUnknown):
			tried++
			w.count(func(t *Tally) { t.Unknown++ })
			continue
		case err != nil: // it was not proposed
			w.count(func(t *Tally) { t.Refused++; w.refused[c.value] = true })
			continue
		}
		tried++
		c.mod = res.Revision
		acked = append(acked, c)
		w.count(func(t *Tally) { t.Acked++; w.newest = max(w.newest, c.mod) })
	}
	return acked
}

// read asks whichever server runs on a machine for the newest state.
func (w *world) read(m *Machine, dice *rand.Rand) error {
	for w.ctx.Err() == nil {
		w.pause(time.Duration(dice.IntN(20)) * time.Millisecond)
		r := m.now.Load()
		if r == nil {
			continue
		}
		var before mvcc.Revision
		w.count(func(*Tally) { before = w.newest })
		v, err := r.Linearizable(w.ctx)
		if err != nil {
			continue
		}
		w.count(func(t *Tally) { t.Read++ })
		if v.Revision() < before {
			return fmt.Errorf("a linearizable read on machine %d sees revision %d, after %d was acknowledged", m.N, v.Revision(), before)
		}
	}
	return nil
}

// watch follows all changes through one server after another, and returns what it was
// shown. With each server it goes on from the revision to which it had come.
func (w *world) watch(dice *rand.Rand) (shown []change, err error) {
	next := mvcc.Revision(1)
	for w.ctx.Err() == nil {
		r := w.machines[dice.IntN(Machines)].now.Load()
		if r == nil {
			w.pause(time.Millisecond)
			continue
		}
		feed, every := r.NewFeed(), mvcc.KeyRange{End: mvcc.FromKey}
		feed.Add(every)
		for until := time.After(time.Duration(dice.IntN(400)) * time.Millisecond); ; {
			v, _, _ := feed.Take()
			if v.Revision() >= next {
				changes, err := v.Changes(next, v.Revision())
				if err != nil {
					return shown, fmt.Errorf("watch from revision %d: %w", next, err)
				}
				for _, c := range changes {
					shown = append(shown, change{c.KV.Mod, c.KV.Key, string(c.KV.Value)})
				}
				w.count(func(t *Tally) { t.Watched += len(changes) })
				next = v.Revision() + 1
			}
			select {
			case <-feed.Wake():
				continue
			case <-until:
			case <-r.Done():
			case <-w.ctx.Done():
			}
			break
		}
		feed.Remove(every)
	}
	return shown, nil
}

// hashes looks at the states that the servers of a machine come to.
func (w *world) hashes(m *Machine) error {
	for w.ctx.Err() == nil {
		if r := m.now.Load(); r != nil {
			if slot, hash, err := r.Hash(w.ctx); err == nil && slot > 0 {
				if err := w.compare(slot, hash); err != nil {
					return err
				}
			}
		}
		w.pause(25 * time.Millisecond)
	}
	return nil
}

// compare holds the state of a replica against those that others had at its slot.
func (w *world) compare(slot journal.Slot, hash [32]byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tally.States++
	if other, ok := w.states[slot]; ok && other != hash {
		return fmt.Errorf("two replicas at slot %d have the states %x and %x", slot, other[:6], hash[:6])
	}
	w.states[slot] = hash
	return nil
}

// disturb moves the store's clock on at a pace of its own, and sends machines to sleep
// for longer than slots are kept.
func (w *world) disturb(dice *rand.Rand) {
	for w.ctx.Err() == nil {
		w.advance(time.Duration(dice.IntN(20)) * time.Second)
		if dice.IntN(8) == 0 { // all of them, or a clock that was set
			w.advance(time.Duration(dice.IntN(40)-4) * time.Minute)
		}
		if dice.IntN(8) == 0 {
			w.nap(dice)
		}
		w.pause(time.Duration(dice.IntN(30)) * time.Millisecond)
	}
}

// nap lets a machine sleep for up to an hour by the store's clock, while others go on.
func (w *world) nap(dice *rand.Rand) {
	m := w.machines[dice.IntN(len(w.machines))]
	m.sleep()
	defer m.wake()
	w.count(func(t *Tally) { t.Sleeps++ })
	for range 1 + dice.IntN(6) {
		w.pause(time.Duration(20+dice.IntN(100)) * time.Millisecond)
		w.advance(time.Duration(dice.IntN(12)) * time.Minute)
	}
}

func (w *world) advance(d time.Duration) {
	if w.cfg.Advance != nil {
		w.cfg.Advance(d)
	}
}

// pause waits for so long, or until the history ends.
func (w *world) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.ctx.Done():
	}
}
