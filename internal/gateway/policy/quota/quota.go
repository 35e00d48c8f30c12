// Package quota lets creates in within the core server's quotas and living
// namespaces: each is written down as pending before its request is sent, and ends
// when its outcome is known. It never sends or reads a request, and never reads a
// ResourceQuota itself.
package quota

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/ledger"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/namespaces"
)

// ErrBusy says that too much changed while a create was reserved.
var ErrBusy = errors.New("too many changes at once")

// Exceeded is the error of a create for which a quota has no room.
type Exceeded struct {
	Quota string
	Used  int64
	Hard  int64
}

func (e *Exceeded) Error() string {
	return fmt.Sprintf("quota %s: %d of %d are used", e.Quota, e.Used, e.Hard)
}

// Limit is the lowest hard limit on a resource, and the quota that sets it.
type Limit struct {
	Hard  int64 // or ledger.NoLimit
	Quota string
}

// Limits are what the core server's quotas say. An answer may be as old as a watch is.
type Limits interface {
	Limit(ctx context.Context, namespace, resource string) (Limit, error)
}

// Request asks to let one create in.
type Request struct {
	Namespace string
	Server    string
	Guard     v1alpha1.Guard // what is held over the server
	Resource  string         // resource.group
	Version   string         // of the API; "" if it is not known
	By        string         // who asks, for people who read a ledger
	User      string         // who creates; "" if that is not known
	// Timeout is how long the create may take from now on.
	Timeout time.Duration
}

// Reservation is a create that was let in. Its owner must call Landed or Failed
// once, or leave it to expire.
type Reservation struct {
	ID string
	// Deadline is when the create's request must have ended.
	Deadline time.Time
	handle   *ledger.Handle
}

// Landed says that the create has made its object, or may have.
func (r *Reservation) Landed() { r.end((*ledger.Ledger).Landed) }

// Failed says that the create has made nothing, and never will.
func (r *Reservation) Failed() { r.end((*ledger.Ledger).Failed) }

// end has the outcome written soon.
func (r *Reservation) end(how func(*ledger.Ledger, string)) {
	r.handle.Queue(func(l *ledger.Ledger) error { how(l, r.ID); return nil })
}

// Flush writes the outcome now.
func (r *Reservation) Flush(ctx context.Context) error { return r.handle.Flush(ctx) }

// Reserver lets creates in. It is safe for concurrent use.
type Reserver struct {
	Namespaces *namespaces.Keeper
	Ledgers    *ledger.Set
	Counter    *Counter
	Limits     Limits
	Pause      ledger.Pause
	// Grace is how long after its deadline a request may still create its object.
	Grace time.Duration
}

const (
	// The first and the longest pause of a create that waits for others of its user
	// to end; it doubles in between.
	sharePauseFirst = 10 * time.Millisecond
	sharePauseMost  = 640 * time.Millisecond
	// maxAttempts is how often Reserve tries: each failed attempt has changed what
	// stood in the way.
	maxAttempts = 20
)

// Reserve lets a create in, which then counts as used, or returns why it does not.
// The Reservation is nil if nothing has to be held: there is no quota, and the
// server's namespaces are not guarded.
func (c *Reserver) Reserve(ctx context.Context, q Request) (*Reservation, error) {
	recounted, wait := false, sharePauseFirst
	for attempt := range maxAttempts {
		at, lim, err := c.rules(ctx, q, attempt > 0)
		if err != nil {
			return nil, err
		}
		if lim.Hard == ledger.NoLimit && !q.Guard.Namespaces {
			return nil, nil
		}
		r, used, err := c.record(ctx, at, q, lim.Hard)
		switch {
		case err == nil:
			return r, nil
		case errors.Is(err, ledger.ErrNotFound):
			err = c.Ledgers.At(at).Create(ctx)
		case errors.Is(err, ledger.ErrNotHeld):
			err = c.Namespaces.Hold(ctx, at, q.Server)
		case errors.Is(err, ledger.ErrReleasing):
			err = c.Namespaces.EndRelease(ctx, at, q.Server)
		case errors.Is(err, ledger.ErrDraining):
			return nil, namespaces.ErrTerminating
		case errors.Is(err, ledger.ErrUncounted), errors.Is(err, ledger.ErrExceeded) && !recounted:
			// Only a list gives back what was deleted: it is made before a create is
			// refused.
			recounted = true
			err = c.Counter.Refresh(ctx, at, q.Server, q.Resource, q.Version)
		case errors.Is(err, ledger.ErrShare) && wait <= sharePauseMost && c.Pause(ctx, wait):
			wait, err = 2*wait, nil // most of the user's other creates end soon
		case errors.Is(err, ledger.ErrExceeded):
			return nil, &Exceeded{Quota: lim.Quota, Used: used, Hard: lim.Hard}
		}
		if err != nil && !errors.Is(err, ledger.ErrStale) {
			return nil, err
		}
	}
	return nil, ErrBusy
}

// rules returns the key of the ledger that a create has to be in, and the limit on
// the create. The limit is NoLimit if the namespace is missing, or if no quota
// holds for the server.
func (c *Reserver) rules(ctx context.Context, q Request, fresh bool) (ledger.Key, Limit, error) {
	none := Limit{Hard: ledger.NoLimit}
	at, err := c.find(ctx, q, fresh)
	if errors.Is(err, namespaces.ErrMissing) && !q.Guard.Namespaces {
		return at, none, nil // without a namespace there is no quota
	}
	if err != nil {
		return at, none, err
	}
	lim, err := c.Limits.Limit(ctx, q.Namespace, q.Resource)
	if err != nil {
		return at, none, fmt.Errorf("read the quotas of namespace %s: %w", q.Namespace, err)
	}
	if !q.Guard.Quota {
		lim.Hard = ledger.NoLimit
	}
	return at, lim, nil
}

// find returns the key of the namespace's ledger. The error is
// namespaces.ErrTerminating if the guard lets nothing be created in the namespace.
func (c *Reserver) find(ctx context.Context, q Request, fresh bool) (ledger.Key, error) {
	ns, err := c.Namespaces.Find(ctx, q.Namespace, fresh)
	if err != nil {
		return ledger.Key{}, err
	}
	if ns.Terminating && q.Guard.Namespaces {
		return ledger.Key{}, namespaces.ErrTerminating
	}
	return ledger.Key{Namespace: q.Namespace, UID: ns.UID}, nil
}

// record makes the create pending. If the ledger refuses, it also returns what the
// ledger said was used then.
func (c *Reserver) record(ctx context.Context, at ledger.Key, q Request, hard int64) (*Reservation, int64, error) {
	held := &Reservation{ID: rand.Text(), Deadline: time.Now().Add(q.Timeout), handle: c.Ledgers.At(at)}
	pending := ledger.Create{
		Server:   q.Server,
		Resource: q.Resource,
		Version:  q.Version,
		Seconds:  int64((q.Timeout + c.Grace + time.Second - 1) / time.Second),
		By:       q.By,
		User:     ledger.UserKey(q.User),
	}
	// The change may be made again after this returns, if ctx has ended: it must not
	// share what is returned.
	var used int64
	err := held.handle.Update(ctx, func(l *ledger.Ledger) error {
		used = l.Counts[q.Resource].Used
		return l.Reserve(held.ID, pending, hard, q.Guard.Namespaces)
	})
	switch {
	case err == nil:
		return held, 0, nil
	case ledger.Refused(err):
		return nil, used, err
	}
	held.Failed() // it may be written, or may still come to be
	return nil, 0, err
}

// Check says whether Reserve would let the create in. It changes nothing but the
// count, if it has to list.
func (c *Reserver) Check(ctx context.Context, q Request) error {
	at, lim, err := c.rules(ctx, q, false)
	if err != nil || lim.Hard == ledger.NoLimit {
		return err
	}
	for again := false; ; again = true {
		l, _, err := c.Ledgers.At(at).Read(ctx)
		if errors.Is(err, ledger.ErrNotFound) {
			if lim.Hard > 0 {
				return nil // nothing was ever created here
			}
			return &Exceeded{Quota: lim.Quota}
		}
		if err != nil {
			return err
		}
		n := l.Counts[q.Resource]
		if n.Counted && n.Used+1 <= lim.Hard {
			return nil
		}
		if again {
			return &Exceeded{Quota: lim.Quota, Used: n.Used, Hard: lim.Hard}
		}
		if err := c.Counter.Refresh(ctx, at, q.Server, q.Resource, q.Version); err != nil {
			return err
		}
	}
}

// LandedUnreserved counts an object that was created without a reservation: an
// update, let through because its object was there, has made the object anew.
func (c *Reserver) LandedUnreserved(ctx context.Context, q Request) error {
	at, err := c.find(ctx, q, false)
	if err != nil {
		return err
	}
	c.Ledgers.At(at).Queue(func(l *ledger.Ledger) error { l.LandedUnreserved(q.Resource); return nil })
	return nil
}

// End ends a reservation that by has made, from any gateway. The error is
// ledger.ErrNotFound if by has no such reservation, and namespaces.ErrMissing if
// there is no such namespace.
func (c *Reserver) End(ctx context.Context, namespace, id, by string, landed bool) error {
	at, err := c.find(ctx, Request{Namespace: namespace}, false)
	if err != nil {
		return err
	}
	return c.Ledgers.At(at).Update(ctx, func(l *ledger.Ledger) error {
		f, ok := l.Pending[id]
		switch {
		case !ok || f.By != by:
			return ledger.ErrNotFound
		case landed:
			l.Landed(id)
		default:
			l.Failed(id)
		}
		return nil
	})
}
