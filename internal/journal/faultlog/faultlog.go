// Package faultlog wraps a journal in the faults of a distant store: calls
// fail, fail but are applied, are slow, land late, or are answered twice. It
// never stores anything itself, and every choice replays from its seed.
package faultlog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
)

var (
	// ErrInjected is the answer to a call that met a fault. Of an Append it
	// says nothing about the outcome.
	ErrInjected = errors.New("injected fault")
	// ErrOutage is the answer to every call during an outage.
	ErrOutage = errors.New("injected outage")
)

// Config says how often calls meet a fault. Shares are between 0 and 1; the
// zero value injects nothing.
type Config struct {
	// Seed replays a run: what befalls the n-th attempt at a slot is a pure
	// function of the seed, the slot and n, however calls interleave. 0 draws
	// one, which is logged and returned by Store.Seed.
	Seed uint64

	// The fates of an Append. One Append meets one at most, so the sum of the
	// shares must not exceed 1.

	// Fail: an error, and the record is not stored.
	Fail float64
	// FailApplied: an error, although the record was stored.
	FailApplied float64
	// Late: an error now (that of ctx, for half of those whose ctx has a
	// deadline), and the record is attempted after up to MaxLate, when its slot
	// may or may not still be free.
	Late float64
	// FalseTaken: the record was stored, and the answer is ErrTaken, as after
	// a silent retry by a client library. This breaks the contract of Append:
	// it is for tests of code that compares what a slot holds before it believes the
	// answer.
	FalseTaken float64
	// MaxLate bounds how late a late record is attempted. 0 means one second.
	MaxLate time.Duration

	// Delay: the call waits for up to MaxDelay before anything else happens.
	// Any call may be delayed, also one that meets another fault.
	Delay float64
	// MaxDelay bounds a delay. 0 means 100 ms.
	MaxDelay time.Duration

	// ReadFail: a Read, Peek, GetBlob or ListBlobs is an error.
	ReadFail float64
	// WriteFail: a PutBlob, DeleteBlob or Trim is an error; it was applied in
	// half of the cases.
	WriteFail float64

	// Logger is told of every fault, at debug level, and of the seed. nil: nothing is
	// logged.
	Logger *slog.Logger
}

// Counts is how often each fault has struck.
type Counts struct {
	Fail, FailApplied, Late, FalseTaken, Delay, ReadFail, WriteFail, Outage int
	// Landed is how many of the late records took their slot.
	Landed int
}

// Store is a journal.Store with faults.
type Store struct {
	inner journal.Store
	fates *fates

	stop context.CancelFunc // ends late attempts
	live context.Context    // until Close
	late late
}

// late counts the attempts that are still to come. A sync.WaitGroup would not do:
// nobody may wait for one while an attempt is added to none.
type late struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed once n is 0; nil before the first attempt
}

// add counts one more attempt, unless stopped says that Close waits for them.
func (l *late) add(stopped func() bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if stopped() {
		return false
	}
	if l.n == 0 {
		l.none = make(chan struct{})
	}
	l.n++
	return true
}

// done ends one attempt.
func (l *late) done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n--; l.n == 0 {
		close(l.none)
	}
}

// wait returns once no attempt is to come, or ctx ends, whose error it returns then.
func (l *late) wait(ctx context.Context) error {
	l.mu.Lock()
	none := l.none
	l.mu.Unlock()
	if none == nil {
		return nil
	}
	select {
	case <-none:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fates decides what befalls each call, and counts it.
type fates struct {
	cfg Config
	log *slog.Logger

	mu       sync.Mutex
	outage   bool
	counts   Counts
	attempts map[call]uint64 // how often each call was attempted: what makes a run replay
}

var _ journal.Store = (*Store)(nil)

// call is what may be attempted several times: an operation on a slot or name.
type call struct {
	op   string
	slot journal.Slot
	name string
}

// String is the call as an error's message names it.
func (c call) String() string {
	if c.name != "" {
		return c.op + " " + c.name
	}
	return fmt.Sprintf("%s slot %d", c.op, c.slot)
}

// New returns inner with the faults of cfg. Closing it closes inner.
func New(inner journal.Store, cfg Config) (*Store, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("configure faults: %w", err)
	}
	for cfg.Seed == 0 {
		cfg.Seed = rand.Uint64()
	}
	if cfg.MaxLate == 0 {
		cfg.MaxLate = time.Second
	}
	if cfg.MaxDelay == 0 {
		cfg.MaxDelay = 100 * time.Millisecond
	}
	f := &fates{cfg: cfg, log: cfg.Logger, attempts: make(map[call]uint64)}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	s := &Store{inner: inner, fates: f}
	s.live, s.stop = context.WithCancel(context.Background())
	f.log.Info("injecting faults into the journal", "seed", cfg.Seed)
	return s, nil
}

func (c Config) validate() error {
	for _, share := range []float64{c.Fail, c.FailApplied, c.Late, c.FalseTaken, c.Delay, c.ReadFail, c.WriteFail} {
		if !(share >= 0 && share <= 1) {
			return fmt.Errorf("share %v is not between 0 and 1", share)
		}
	}
	if sum := c.Fail + c.FailApplied + c.Late + c.FalseTaken; sum > 1.000001 {
		return fmt.Errorf("the shares of Fail, FailApplied, Late and FalseTaken sum to %v, more than 1", sum)
	}
	if c.MaxLate < 0 || c.MaxDelay < 0 {
		return errors.New("MaxLate and MaxDelay must not be negative")
	}
	return nil
}

// Seed is the seed that replays this store's faults.
func (s *Store) Seed() uint64 { return s.fates.cfg.Seed }

// String names the store by its seed, for the message of a failed test.
func (s *Store) String() string { return fmt.Sprintf("faultlog(seed=%d)", s.Seed()) }

// Counts returns how often each fault has struck so far.
func (s *Store) Counts() Counts {
	s.fates.mu.Lock()
	defer s.fates.mu.Unlock()
	return s.fates.counts
}

// SetOutage starts or ends an outage: every call fails at once, changing
// nothing, and late records that would land during it are lost.
func (s *Store) SetOutage(on bool) {
	s.fates.mu.Lock()
	defer s.fates.mu.Unlock()
	s.fates.outage = on
}

// Settle waits until no late record is still on its way, or ctx ends.
func (s *Store) Settle(ctx context.Context) error { return s.late.wait(ctx) }

// begin is the start of every call. It returns what decides the call's fate.
func (s *Store) begin(ctx context.Context, c call) (*rand.Rand, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.live.Err() != nil {
		return nil, journal.ErrClosed
	}
	return s.fates.begin(ctx, c)
}

// dice returns what decides this attempt at c: a source of its own.
func (f *fates) dice(c call) *rand.Rand {
	f.mu.Lock()
	n := f.attempts[c]
	f.attempts[c] = n + 1
	f.mu.Unlock()
	h := fnv.New64a()
	h.Write([]byte(c.op + "\x00" + c.name + "\x00"))
	h.Write(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(c.slot)), n))
	return rand.New(rand.NewPCG(f.cfg.Seed, h.Sum64()))
}

// begin lets a call meet an outage, or a delay.
func (f *fates) begin(ctx context.Context, c call) (*rand.Rand, error) {
	dice := f.dice(c)
	delay := time.Duration(0)
	if dice.Float64() < f.cfg.Delay {
		delay = time.Duration(dice.Int64N(int64(f.cfg.MaxDelay) + 1))
		f.strike("delay", c, func(n *Counts) { n.Delay++ })
	}
	if f.out() {
		f.strike("outage", c, func(n *Counts) { n.Outage++ })
		return nil, ErrOutage
	}
	return dice, sleep(ctx, delay)
}

// out says whether there is an outage.
func (f *fates) out() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.outage
}

// strike counts a fault and tells the log.
func (f *fates) strike(fault string, c call, count func(*Counts)) {
	f.mu.Lock()
	count(&f.counts)
	f.mu.Unlock()
	f.log.Debug("injected a fault", "fault", fault, "op", c.op, "slot", c.slot, "name", c.name, "seed", f.cfg.Seed)
}

// sleep waits for d, or until ctx ends, whose error it returns then.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
