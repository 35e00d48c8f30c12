package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// The errors of a Store.
var (
	ErrNotFound = errors.New("not found")
	ErrConflict = errors.New("somebody else was faster")
)

// Key names the ledger of one namespace. UID tells apart namespaces that had the
// same name one after the other: each has its own ledger.
type Key struct{ Namespace, UID string }

// Store keeps the ledgers' texts, each with a version that every write changes.
// It is safe for concurrent use.
type Store interface {
	// Read returns the newest text and its version, or ErrNotFound.
	Read(ctx context.Context, k Key) (text, version string, err error)
	// Write replaces the text of that version, or writes the first text if version
	// is "", and returns the new version. After ErrConflict nothing was written:
	// the stored text has another version, or there is none. After any other error
	// the outcome is unknown, and the write may still happen until another write
	// has happened.
	Write(ctx context.Context, k Key, text, version string) (string, error)
	// Remove deletes the text of that version. Its errors are those of Write.
	Remove(ctx context.Context, k Key, version string) error
}

// Change changes a ledger, or returns why it refuses to. It may be called several
// times, with different ledgers.
type Change func(*Ledger) error

// Pause waits for about d, and returns false if ctx ended.
type Pause func(ctx context.Context, d time.Duration) bool

// Handle reads and writes one ledger for one gateway. It writes the changes of
// many requests together, and makes one write at a time. It is safe for concurrent
// use.
type Handle struct {
	store  Store
	key    Key
	pause  Pause
	queued func(Key) // told after each Queue

	turn chan struct{} // held by the goroutine that writes

	mu      sync.Mutex
	waiting []*update // changes that somebody waits for; guarded by mu
	later   []Change  // changes that nobody waits for; guarded by mu

	// text and version are what was last read or written; guarded by turn.
	// Invariant: version is "" if the stored text may be another one.
	text, version string
}

type update struct {
	change Change
	done   chan struct{} // closed once err is set
	err    error
}

const (
	// commitTimeout bounds one write with its retries.
	commitTimeout = 10 * time.Second
	// The pause before the second attempt, and the longest; it doubles in between.
	commitPauseFirst = 4 * time.Millisecond
	commitPauseMost  = 250 * time.Millisecond
)

// Key is the key of the handle's ledger.
func (h *Handle) Key() Key { return h.key }

// Update makes a change to the newest ledger. It returns nil once the change is
// durable; the change's own error if the newest ledger refused it; ErrNotFound if
// there is no ledger. After any other error the outcome is unknown.
func (h *Handle) Update(ctx context.Context, c Change) error {
	u := &update{change: c, done: make(chan struct{})}
	h.mu.Lock()
	h.waiting = append(h.waiting, u)
	h.mu.Unlock()
	select {
	case <-u.done:
		return u.err
	case <-ctx.Done():
		h.withdraw(u)
		return ctx.Err()
	case h.turn <- struct{}{}:
	}
	select {
	case <-u.done: // the goroutine that had the turn before has written it
		<-h.turn
		return u.err
	default:
	}
	// Other goroutines wait for this write too: it does not end with our ctx.
	h.write(context.WithoutCancel(ctx))
	<-h.turn
	<-u.done
	return u.err
}

// withdraw takes an update back, unless it is being written.
func (h *Handle) withdraw(u *update) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting = slices.DeleteFunc(h.waiting, func(o *update) bool { return o == u })
}

// Queue has a change made with the next write, or with Flush. Nobody learns
// whether the ledger refused it.
func (h *Handle) Queue(c Change) {
	h.mu.Lock()
	h.later = append(h.later, c)
	h.mu.Unlock()
	h.queued(h.key)
}

// Flush writes the changes that are queued.
func (h *Handle) Flush(ctx context.Context) error {
	h.mu.Lock()
	none := len(h.later) == 0
	h.mu.Unlock()
	if none {
		return nil
	}
	return h.Update(ctx, func(*Ledger) error { return nil })
}

// write writes all updates and queued changes. The caller has the turn.
func (h *Handle) write(ctx context.Context) {
	h.mu.Lock()
	updates, later := h.waiting, h.later
	h.waiting, h.later = nil, nil
	h.mu.Unlock()
	if len(updates) == 0 && len(later) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	err := h.commit(ctx, updates, later)
	if err != nil && !errors.Is(err, ErrNotFound) {
		// The queued changes must happen, and are idempotent: the next write makes them.
		h.mu.Lock()
		h.later = append(later, h.later...)
		h.mu.Unlock()
	}
	for _, u := range updates {
		if err != nil {
			u.err = err
		}
		close(u.done)
	}
}

// commit applies the changes and writes the result, until a write is known to have
// happened or there is nothing to write. A refusal counts only if the ledger was
// read in the same attempt: otherwise it may be of an old text.
func (h *Handle) commit(ctx context.Context, updates []*update, later []Change) error {
	for wait := commitPauseFirst; ; wait = min(2*wait, commitPauseMost) {
		fresh := h.version == ""
		if fresh {
			if err := h.refresh(ctx); err != nil {
				if errors.Is(err, ErrNotFound) || errors.Is(err, ErrUnreadable) || ctx.Err() != nil {
					return err
				}
				if !h.pause(ctx, wait) {
					return err
				}
				continue
			}
		}
		l, err := Parse(h.text)
		if err != nil {
			return fmt.Errorf("ledger of namespace %s: %w", h.key.Namespace, err)
		}
		if refused := apply(l, updates, later); refused && !fresh {
			h.version = ""
			continue
		}
		text := l.Encode()
		if text == h.text {
			if fresh {
				return nil
			}
			h.version = "" // our text may be old, so that the newest one may still need the changes
			continue
		}
		version, err := h.store.Write(ctx, h.key, text, h.version)
		if err == nil {
			h.text, h.version = text, version
			return nil
		}
		// After a conflict, and if the outcome is unknown, the next read tells what
		// is stored, and the next write keeps a late one from happening.
		h.version = ""
		if !h.pause(ctx, wait) {
			return fmt.Errorf("write the ledger of namespace %s: %w", h.key.Namespace, err)
		}
	}
}

func (h *Handle) refresh(ctx context.Context) error {
	text, version, err := h.store.Read(ctx, h.key)
	if err != nil {
		return fmt.Errorf("read the ledger of namespace %s: %w", h.key.Namespace, err)
	}
	h.text, h.version = text, version
	return nil
}

// apply makes the changes in order, and returns whether the ledger refused an update.
func apply(l *Ledger, updates []*update, later []Change) (refused bool) {
	for _, c := range later {
		_ = c(l) // nobody waits for the answer
	}
	for _, u := range updates {
		u.err = u.change(l)
		refused = refused || u.err != nil
	}
	return refused
}

// Create stores an empty ledger, unless there is a ledger.
func (h *Handle) Create(ctx context.Context) error {
	l := New(rand.Text())
	_, err := h.store.Write(ctx, h.key, l.Encode(), "")
	if err != nil && !errors.Is(err, ErrConflict) {
		return fmt.Errorf("make the ledger of namespace %s: %w", h.key.Namespace, err)
	}
	return nil
}

// Read returns the newest ledger and its version.
func (h *Handle) Read(ctx context.Context) (*Ledger, string, error) {
	text, version, err := h.store.Read(ctx, h.key)
	if err != nil {
		return nil, "", fmt.Errorf("read the ledger of namespace %s: %w", h.key.Namespace, err)
	}
	l, err := Parse(text)
	if err != nil {
		return nil, "", fmt.Errorf("ledger of namespace %s: %w", h.key.Namespace, err)
	}
	return l, version, nil
}

// ReadOrCreate returns the newest ledger, and creates it if there is none.
func (h *Handle) ReadOrCreate(ctx context.Context) (*Ledger, error) {
	l, _, err := h.Read(ctx)
	if errors.Is(err, ErrNotFound) {
		if err := h.Create(ctx); err != nil {
			return nil, err
		}
		l, _, err = h.Read(ctx)
	}
	return l, err
}

// Remove deletes the ledger of that version.
func (h *Handle) Remove(ctx context.Context, version string) error {
	return h.store.Remove(ctx, h.key, version)
}

// RandomPause waits for half of d to all of it, at random, so that gateways that
// conflict stop conflicting. It returns false if ctx ended.
func RandomPause(ctx context.Context, d time.Duration) bool {
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
