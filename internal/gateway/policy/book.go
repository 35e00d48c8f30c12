package policy

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// What a store answers.
var (
	errNotFound = errors.New("not found")
	errConflict = errors.New("somebody else was faster")
)

// place is a namespace in one of its lives: a namespace that is made again
// under its old name has a ledger of its own.
type place struct{ Name, UID string }

// store keeps the ledgers' texts, each with a version that every write changes.
// It is safe for concurrent use.
type store interface {
	// read returns the newest text and its version, or errNotFound.
	read(ctx context.Context, p place) (text, version string, err error)
	// write replaces the text of that version, or makes the first if version is
	// "", and returns the new version. errConflict: another text is there, or
	// none; nothing was written. Any other error: the outcome is unknown, and
	// the write may still happen until another one has.
	write(ctx context.Context, p place, text, version string) (string, error)
	// remove deletes the text of that version. Errors are as write's.
	remove(ctx context.Context, p place, version string) error
}

// step is one change to a ledger: it changes it, or returns why it does not.
// It may be applied several times, to different ledgers.
type step func(*ledger) error

// book is one gateway's hand on one ledger. The steps of many requests are
// written together, one write at a time. It is safe for concurrent use.
type book struct {
	store store
	place place
	pause func(context.Context, time.Duration) bool

	turn chan struct{} // held by who writes

	mu     sync.Mutex
	queued []*entry
	later  []step
	counts map[string]*counting // by resource

	// What was last read or written; the writer's.
	text, version string
}

// counting has those who want a resource listed take turns.
type counting struct {
	token chan struct{} // held by who lists
	begun atomic.Int64  // lists
	well  bool          // the last one was taken in; the token's holder's
}

func (b *book) counting(resource string) *counting {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.counts[resource]
	if c == nil {
		c = &counting{token: make(chan struct{}, 1)}
		b.counts[resource] = c
	}
	return c
}

type entry struct {
	step step
	done chan struct{}
	err  error
}

const (
	// commitTime bounds one write, its conflicts and its lost answers.
	commitTime = 10 * time.Second
	commitWait = 4 * time.Millisecond // before the second attempt; doubles
	commitMost = 250 * time.Millisecond
)

func newBook(s store, p place, pause func(context.Context, time.Duration) bool) *book {
	return &book{store: s, place: p, pause: pause, turn: make(chan struct{}, 1), counts: map[string]*counting{}}
}

// do applies the step to the newest ledger and returns once that is durable, or
// with what the step said to the newest ledger, or with errNotFound if there is
// no ledger and the step is not one that makes one. Any other error leaves the
// outcome unknown.
func (b *book) do(ctx context.Context, s step) error {
	e := &entry{step: s, done: make(chan struct{})}
	b.mu.Lock()
	b.queued = append(b.queued, e)
	b.mu.Unlock()
	select {
	case <-e.done:
		return e.err
	case <-ctx.Done():
		b.withdraw(e)
		return ctx.Err()
	case b.turn <- struct{}{}:
	}
	select {
	case <-e.done: // whoever had the turn before has written it
		<-b.turn
		return e.err
	default:
	}
	// Others wait on this write as well: it does not end with one of them.
	b.flush(context.WithoutCancel(ctx))
	<-b.turn
	<-e.done
	return e.err
}

// withdraw takes an entry out of the queue; one that is being written stays.
func (b *book) withdraw(e *entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queued = slices.DeleteFunc(b.queued, func(o *entry) bool { return o == e })
}

// soon queues a step that nobody waits for; it goes with the next write, or
// with settle.
func (b *book) soon(s step) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.later = append(b.later, s)
}

// settle writes what soon has queued.
func (b *book) settle(ctx context.Context) error {
	b.mu.Lock()
	none := len(b.later) == 0
	b.mu.Unlock()
	if none {
		return nil
	}
	return b.do(ctx, func(*ledger) error { return nil })
}

// flush writes everything that is queued. The caller has the turn.
func (b *book) flush(ctx context.Context) {
	b.mu.Lock()
	entries, later := b.queued, b.later
	b.queued, b.later = nil, nil
	b.mu.Unlock()
	if len(entries) == 0 && len(later) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, commitTime)
	defer cancel()
	err := b.commit(ctx, entries, later)
	if err != nil && !errors.Is(err, errNotFound) {
		// They are idempotent, and must happen: with the next write, then.
		b.mu.Lock()
		b.later = append(later, b.later...)
		b.mu.Unlock()
	}
	for _, e := range entries {
		if err != nil {
			e.err = err
		}
		close(e.done)
	}
}

// commit applies the steps until a write is known to have happened, or nothing
// is left to write. A step's refusal counts only if the ledger was read anew.
func (b *book) commit(ctx context.Context, entries []*entry, later []step) error {
	for wait := commitWait; ; wait = min(2*wait, commitMost) {
		read := b.version == ""
		if read {
			if err := b.reread(ctx); err != nil {
				if errors.Is(err, errNotFound) || errors.Is(err, errUnreadable) || ctx.Err() != nil {
					return err
				}
				if !b.pause(ctx, wait) {
					return err
				}
				continue
			}
		}
		l, err := parseLedger(b.text)
		if err != nil {
			return fmt.Errorf("ledger of namespace %s: %w", b.place.Name, err)
		}
		if refused := apply(l, entries, later); refused && !read {
			b.version = ""
			continue
		}
		text := l.encode()
		if text == b.text {
			if read {
				return nil
			}
			b.version = "" // nothing to write proves nothing of the newest ledger
			continue
		}
		version, err := b.store.write(ctx, b.place, text, b.version)
		if err == nil {
			b.text, b.version = text, version
			return nil
		}
		// A conflict, or an outcome that is not known: the next read tells, and
		// the next write keeps a late one from happening.
		b.version = ""
		if !b.pause(ctx, wait) {
			return fmt.Errorf("write the ledger of namespace %s: %w", b.place.Name, err)
		}
	}
}

func (b *book) reread(ctx context.Context) error {
	text, version, err := b.store.read(ctx, b.place)
	if err != nil {
		return fmt.Errorf("read the ledger of namespace %s: %w", b.place.Name, err)
	}
	b.text, b.version = text, version
	return nil
}

// apply applies the steps in order, and reports whether one refused.
func apply(l *ledger, entries []*entry, later []step) (refused bool) {
	for _, s := range later {
		_ = s(l) // what goes later has no answer
	}
	for _, e := range entries {
		e.err = e.step(l)
		refused = refused || e.err != nil
	}
	return refused
}

// found makes the ledger, unless there is one.
func (b *book) found(ctx context.Context) error {
	l := newLedger(rand.Text())
	_, err := b.store.write(ctx, b.place, l.encode(), "")
	if err != nil && !errors.Is(err, errConflict) {
		return fmt.Errorf("make the ledger of namespace %s: %w", b.place.Name, err)
	}
	return nil
}

// look returns the newest ledger.
func (b *book) look(ctx context.Context) (*ledger, string, error) {
	text, version, err := b.store.read(ctx, b.place)
	if err != nil {
		return nil, "", fmt.Errorf("read the ledger of namespace %s: %w", b.place.Name, err)
	}
	l, err := parseLedger(text)
	if err != nil {
		return nil, "", fmt.Errorf("ledger of namespace %s: %w", b.place.Name, err)
	}
	return l, version, nil
}

// randomPause waits a part of d that chance decides, so that writers in each
// other's way part. It reports false if ctx ended.
func randomPause(ctx context.Context, d time.Duration) bool {
	var b [1]byte
	rand.Read(b[:])
	t := time.NewTimer(d/2 + d*time.Duration(b[0])/512)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
