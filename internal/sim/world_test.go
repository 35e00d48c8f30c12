package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/faultlog"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/journal/s3log"
	"github.com/xbernetes/xbernetes/internal/journal/s3log/s3test"
	"github.com/xbernetes/xbernetes/internal/journal/sqllog"
	"github.com/xbernetes/xbernetes/internal/journal/sqllog/pgtest"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/replica"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

const (
	bucket = "journals"
	// trip is how long a request is on its way, so that those who wait for one
	// another do not ask without a pause.
	trip = 8 * time.Millisecond
)

// world is one store, and the machines that use it.
type world struct {
	t     *testing.T
	seed  uint64
	clock *s3test.Clock   // of an S3 store; others do not look at it
	ctx   context.Context // ends when the history does
	stop  context.CancelFunc

	machines []*machine
	// open opens the journal as an undisturbed machine sees it.
	open func(ctx context.Context) (journal.Store, error)

	mu     sync.Mutex
	states map[journal.Slot][32]byte // what some replica's state came to; guarded by mu
	tally  tally                     // guarded by mu
}

// tally is what a history met.
type tally struct {
	acked, unknown, watched, starts, sleeps, left, deleted, states int
}

func (a *tally) add(b tally) {
	a.acked, a.unknown, a.watched, a.starts = a.acked+b.acked, a.unknown+b.unknown, a.watched+b.watched, a.starts+b.starts
	a.sleeps, a.left, a.deleted, a.states = a.sleeps+b.sleeps, a.left+b.left, a.deleted+b.deleted, a.states+b.states
}

func (w *world) count(f func(*tally)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&w.tally)
}

// machine runs one server after another. While it sleeps, none of its requests
// reaches the store and none of the answers reaches it, so that it learns
// nothing of the time that passes there.
type machine struct {
	w    *world
	n    int
	dice *rand.Rand // of what befalls the machine; its own goroutine's
	open func(ctx context.Context) (journal.Store, error)

	mu    sync.Mutex
	awake chan struct{} // closed while the machine is awake; guarded by mu

	now atomic.Pointer[replica.Replica] // the server that runs; nil: none
}

// stores are what a world can be around. Memory and PostgreSQL delete at once what is
// trimmed. Memory is so fast that much more happens in one history; S3 is as in use.
var stores = map[string]func(*world){"memory": (*world).inMemory, "s3": (*world).onS3, "postgres": (*world).onPostgres}

// newWorld makes a world around one of stores.
func newWorld(t *testing.T, seed uint64, machines int, on string) *world {
	t.Helper()
	w := &world{t: t, seed: seed, clock: new(s3test.Clock), states: map[journal.Slot][32]byte{}}
	w.ctx, w.stop = context.WithCancel(t.Context())
	for n := range machines {
		m := &machine{w: w, n: n, dice: rand.New(rand.NewPCG(seed, uint64(n))), awake: make(chan struct{})}
		close(m.awake)
		w.machines = append(w.machines, m)
	}
	stores[on](w)
	return w
}

func (w *world) inMemory() {
	mem := memlog.New(memlog.Options{Depth: 64})
	w.open = func(context.Context) (journal.Store, error) { return mem.Open(), nil }
	w.gate()
}

func (w *world) onPostgres() {
	u, err := url.Parse(pgtest.Shared(w.t).URL("postgres", fmt.Sprint("table=h", journals.Add(1))))
	if err != nil {
		w.t.Fatal(err)
	}
	w.open = func(ctx context.Context) (journal.Store, error) {
		cfg, err := sqllog.ParseURL(u)
		if err != nil {
			return nil, err
		}
		cfg.Pool.MaxConns = 4
		return sqllog.Open(ctx, cfg)
	}
	w.gate()
}

// journals counts those that lie in one database.
var journals atomic.Int64

// gate lets no call of a machine on its journal begin nor end while the machine sleeps.
func (w *world) gate() {
	for _, m := range w.machines {
		m.open = func(ctx context.Context) (journal.Store, error) {
			log, err := w.open(ctx)
			if err != nil {
				return nil, err
			}
			return gated{log, m}, nil
		}
	}
}

// onS3 gives each machine a way of its own to one store.
func (w *world) onS3() {
	store, clock, err := s3test.New(bucket, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	w.clock = clock
	at := func(handler http.Handler) func(context.Context) (journal.Store, error) {
		front := httptest.NewServer(handler)
		w.t.Cleanup(front.Close)
		return func(ctx context.Context) (journal.Store, error) {
			return s3log.Open(ctx, s3log.Config{
				Bucket: bucket, Prefix: "j", Endpoint: front.URL, PathStyle: true,
				Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
			})
		}
	}
	w.open = at(store)
	for _, m := range w.machines {
		m.open = at(way{m, store})
	}
}

// way is a machine's way to a store.
type way struct {
	m     *machine
	store http.Handler
}

func (y way) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	y.m.w.pause(trip)
	if !y.m.wait(r.Context()) {
		return
	}
	got := httptest.NewRecorder()
	if r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/probe/") {
		got.Code = http.StatusForbidden // then the store is probed once a machine, not at each start
	} else {
		y.store.ServeHTTP(got, r)
	}
	if !y.m.wait(r.Context()) {
		return
	}
	for name, values := range got.Header() {
		rw.Header()[name] = values
	}
	rw.WriteHeader(got.Code)
	_, _ = rw.Write(got.Body.Bytes()) // a client that is gone
}

// wait waits until the machine is awake.
func (m *machine) wait(ctx context.Context) bool {
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

func (m *machine) sleep() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.awake = make(chan struct{})
}

func (m *machine) wake() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.awake)
}

// serve keeps a server running on the machine until the history ends. If the server is
// killed, or ends because slots that it needs are gone, another one is started.
func (m *machine) serve() error {
	for run := uint64(0); m.w.ctx.Err() == nil; run++ {
		life, kill := context.WithTimeout(m.w.ctx, time.Duration(100+m.dice.IntN(3000))*time.Millisecond)
		err := m.once(life, run)
		killed := life.Err() != nil
		kill()
		switch {
		case killed:
		case errors.Is(err, journal.ErrTrimmed):
			m.w.count(func(t *tally) { t.left++ })
		case err != nil:
			return fmt.Errorf("machine %d: server %d ended: %w", m.n, run, err)
		}
	}
	return nil
}

// once runs one server.
func (m *machine) once(ctx context.Context, run uint64) error {
	log, err := m.open(ctx)
	if err != nil {
		return err
	}
	faulty, err := faultlog.New(counted{log, m.w}, faultlog.Config{
		Seed: m.w.seed + uint64(m.n)<<32 + run + 1,
		Fail: 0.03, FailApplied: 0.05, Late: 0.08, FalseTaken: 0.02, MaxLate: 200 * time.Millisecond,
		Delay: 0.2, MaxDelay: 3 * time.Millisecond, ReadFail: 0.03, WriteFail: 0.05,
	})
	if err != nil {
		return err
	}
	defer faulty.Close()
	r := replica.New(replica.Config{
		Store: faulty, Notifier: notify.NewPolling(10*time.Millisecond, 40*time.Millisecond), Logger: slog.New(slog.DiscardHandler),
		Timeout: time.Second, Attempt: 300 * time.Millisecond,
		Snapshots: snapshot.Policy{EveryBytes: 3 << 10}, Trim: m.n < 2,
	})
	m.w.count(func(t *tally) { t.starts++ })
	m.now.Store(r)
	defer m.now.Store(nil)
	return r.Run(ctx)
}

// gated is a journal on which no Append and no Read begins or ends while the machine
// sleeps.
type gated struct {
	journal.Store
	m *machine
}

func (g gated) Append(ctx context.Context, slot journal.Slot, rec []byte) error {
	if !g.m.wait(ctx) {
		return ctx.Err()
	}
	err := g.Store.Append(ctx, slot, rec)
	if !g.m.wait(ctx) {
		return ctx.Err()
	}
	return err
}

func (g gated) Read(ctx context.Context, from journal.Slot, limit int) ([][]byte, error) {
	if !g.m.wait(ctx) {
		return nil, ctx.Err()
	}
	recs, err := g.Store.Read(ctx, from, limit)
	if !g.m.wait(ctx) {
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
	c.w.count(func(t *tally) { t.deleted += n })
	return n, err
}

// disturb moves the store's clock on at a pace of its own, and sends machines to sleep
// for longer than slots are kept.
func (w *world) disturb(dice *rand.Rand) {
	for w.ctx.Err() == nil {
		w.clock.Advance(time.Duration(dice.IntN(20)) * time.Second)
		if dice.IntN(8) == 0 { // all of them, or a clock that was set
			w.clock.Advance(time.Duration(dice.IntN(40)-4) * time.Minute)
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
	w.count(func(t *tally) { t.sleeps++ })
	for range 1 + dice.IntN(6) {
		w.pause(time.Duration(20+dice.IntN(100)) * time.Millisecond)
		w.clock.Advance(time.Duration(dice.IntN(12)) * time.Minute)
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

// compare holds the state of a replica against those that others had at its slot.
func (w *world) compare(slot journal.Slot, hash [32]byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tally.states++
	if other, ok := w.states[slot]; ok && other != hash {
		return fmt.Errorf("two replicas at slot %d have the states %x and %x", slot, other[:6], hash[:6])
	}
	w.states[slot] = hash
	return nil
}
