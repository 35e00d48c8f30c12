package quota

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/xbernetes/xbernetes/internal/gateway/policy/ledger"
)

// Inventory is what servers hold, asked of the servers themselves.
type Inventory interface {
	// Count lists the objects of a resource that exist now in a namespace. version
	// may be "" if it is not known.
	Count(ctx context.Context, server, resource, version, namespace string) (int64, error)
}

// Counter corrects what ledgers have counted by lists of what exists. It is safe
// for concurrent use.
type Counter struct {
	inventory Inventory
	ledgers   *ledger.Set

	mu        sync.Mutex
	refreshes map[counted]*refresh // those that somebody is in; guarded by mu
}

// counted names what one list counts.
type counted struct {
	at       ledger.Key
	resource string
}

// refresh is a list that several callers share.
type refresh struct {
	users int           // callers in Refresh; guarded by the Counter's mu
	token chan struct{} // held by the caller that lists
	begun atomic.Int64  // how many lists have begun
	well  bool          // the last list was recorded; guarded by token
}

// NewCounter makes a Counter.
func NewCounter(inventory Inventory, ledgers *ledger.Set) *Counter {
	return &Counter{inventory: inventory, ledgers: ledgers, refreshes: map[counted]*refresh{}}
}

// Refresh recounts a resource. A caller that waited for another's list uses that
// list if it began after the caller came: many creates that find a quota used up
// share a list or two.
func (c *Counter) Refresh(ctx context.Context, at ledger.Key, server, resource, version string) error {
	r := c.join(counted{at, resource})
	defer c.leave(counted{at, resource}, r)
	begun := r.begun.Load()
	select {
	case r.token <- struct{}{}:
		defer func() { <-r.token }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if r.begun.Load() > begun && r.well {
		return nil
	}
	r.begun.Add(1)
	err := c.Recount(ctx, at, server, resource, version, nil)
	r.well = err == nil
	return err
}

func (c *Counter) join(what counted) *refresh {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.refreshes[what]
	if r == nil {
		r = &refresh{token: make(chan struct{}, 1)}
		c.refreshes[what] = r
	}
	r.users++
	return r
}

func (c *Counter) leave(what counted, r *refresh) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.users--; r.users == 0 {
		delete(c.refreshes, what)
	}
}

// Recount lists a resource and records the list. expired has pending creates that
// have expired. If version is "", it is that of the last create.
func (c *Counter) Recount(ctx context.Context, at ledger.Key, server, resource, version string, expired []string) error {
	h := c.ledgers.At(at)
	l, _, err := h.Read(ctx)
	if err != nil {
		return err
	}
	if version == "" {
		version = l.Counts[resource].Version
	}
	n, err := c.inventory.Count(ctx, server, resource, version, at.Namespace)
	if err != nil {
		return fmt.Errorf("count %s in namespace %s at server %s: %w", resource, at.Namespace, server, err)
	}
	list := ledger.List{Resource: resource, Born: l.Born, Landed: l.Counts[resource].Landed, Expired: expired, Objects: n}
	return h.Update(ctx, func(now *ledger.Ledger) error { return now.Recount(list) })
}

// Expire ends the pending creates that have expired, among those for which mine
// is true. Those of a counted resource end with a list of it at the server; if the
// list fails, they stay pending.
func (c *Counter) Expire(ctx context.Context, at ledger.Key, server string, mine func(ledger.Create) bool) error {
	h := c.ledgers.At(at)
	l, _, err := h.Read(ctx)
	if err != nil {
		return err
	}
	resources := map[string]bool{}
	var listed, plain []string
	for _, id := range c.ledgers.Expired(at, l) {
		switch f := l.Pending[id]; {
		case !mine(f):
		case l.Counts[f.Resource].Counted && !l.Draining:
			resources[f.Resource] = true
			listed = append(listed, id)
		default:
			plain = append(plain, id)
		}
	}
	var errs []error
	if len(plain) > 0 {
		errs = append(errs, h.Update(ctx, func(now *ledger.Ledger) error { now.Expire(plain); return nil }))
	}
	for _, resource := range slices.Sorted(maps.Keys(resources)) {
		errs = append(errs, c.Recount(ctx, at, server, resource, "", listed))
	}
	return errors.Join(errs...)
}

// Uncount ends the counting of resources that no quota limits any more.
func (c *Counter) Uncount(ctx context.Context, at ledger.Key, resources []string) error {
	return c.ledgers.At(at).Update(ctx, func(now *ledger.Ledger) error {
		for _, r := range resources {
			now.Uncount(r)
		}
		return nil
	})
}
