package policy

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Why a create is not let in.
var (
	errNoNamespace = errors.New("the namespace does not exist")
	errTerminating = errors.New("the namespace is being deleted")
	errBusy        = errors.New("too many changes at once")
)

// exceeded says that a quota is used up.
type exceeded struct {
	Quota string
	Used  int64
	Hard  int64
}

func (e *exceeded) Error() string {
	return fmt.Sprintf("quota %s: %d of %d are used", e.Quota, e.Used, e.Hard)
}

// namespace is what the core server says of one.
type namespace struct {
	UID         string
	Terminating bool
	Finalizers  []string // of its spec
	Version     string
}

// namespaces are the core server's.
type namespaces interface {
	// cached may be old, and false if nothing is known.
	cached(name string) (namespace, bool)
	// get asks the core server; errNotFound if there is none.
	get(ctx context.Context, name string) (namespace, error)
	// finalize replaces the finalizers of ns, as it was read. errConflict: it
	// has changed since. Any other error leaves the outcome unknown.
	finalize(ctx context.Context, name string, ns namespace, finalizers []string) error
}

// inventory is what the servers behind the gateway hold, asked of themselves.
// Known are resources that the ledger knows of, with a version of each, beside
// those that the server's discovery shows.
type inventory interface {
	// count lists the objects of a resource in a namespace that exist now.
	count(ctx context.Context, server, resource, version, namespace string) (int64, error)
	// holds says whether anything of a namespace exists at the server.
	holds(ctx context.Context, server, namespace string, known map[string]string) (bool, error)
	// empty deletes what a namespace has at the server, and says whether a list
	// after that showed nothing.
	empty(ctx context.Context, server, namespace string, known map[string]string) (bool, error)
}

// limit is the lowest hard limit on a resource, and the quota that sets it.
type limit struct {
	Hard  int64 // or noLimit
	Quota string
}

// quotas are the core server's; what they say may be as old as a watch is.
type quotas interface {
	limit(ctx context.Context, namespace, resource string) (limit, error)
}

// clerk keeps the invariants of the package: every step of it may be the last,
// or be taken by several gateways at once.
type clerk struct {
	store      store
	namespaces namespaces
	inventory  inventory
	quotas     quotas
	pause      func(context.Context, time.Duration) bool
	dirty      func(place) // told when a book has steps that wait for settle
	// tender is the server that takes a flight out once it has lapsed: the
	// flight's own, or another if that is no longer registered; "" if none is.
	tender func(flight) string
	settle time.Duration // how long after its deadline a request may still land

	mu    sync.Mutex
	books map[place]*book
	seen  map[place]map[string]time.Time // when each flight was first seen here
}

// ask is a create that wants to be let in.
type ask struct {
	Namespace string
	Server    Server
	Resource  string // resource.group
	Version   string // of the API; "" if it is not known
	By        string
	User      string // whose create it is, to share out places by; "" if it is not known
	// Time is how long the request may take from now on.
	Time time.Duration
}

// ticket is a flight that has been let in: its owner lets it go once, by landed
// or returned, or leaves it to lapse.
type ticket struct {
	ID string
	// Deadline is when the request must have ended.
	Deadline time.Time
	book     *book
	dirty    func(place)
}

func (t *ticket) landed() { t.soon((*ledger).landed) }

func (t *ticket) returned() { t.soon((*ledger).returned) }

func (t *ticket) soon(how func(*ledger, string)) {
	t.book.soon(func(l *ledger) error { how(l, t.ID); return nil })
	t.dirty(t.book.place)
}

func newClerk(s store, n namespaces, i inventory, q quotas) *clerk {
	return &clerk{
		store: s, namespaces: n, inventory: i, quotas: q,
		pause:  randomPause,
		dirty:  func(place) {},
		tender: func(f flight) string { return f.Server },
		books:  map[place]*book{},
		seen:   map[place]map[string]time.Time{},
	}
}

func (c *clerk) book(p place) *book {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.books[p]
	if b == nil {
		b = newBook(c.store, p, c.pause)
		c.books[p] = b
	}
	return b
}

// forget drops what is kept in memory of a namespace that is gone.
func (c *clerk) forget(p place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.books, p)
	delete(c.seen, p)
}

const (
	// shareWait is how long a create waits at first for others of its user to end,
	// and shareMost at last; it doubles in between.
	shareWait = 10 * time.Millisecond
	shareMost = 640 * time.Millisecond
)

// userKey stands for a user's name in a ledger, in few letters.
func userKey(name string) string {
	if name == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:8])
}

// reserve lets a create in, which is then counted, or says why not. The ticket
// is nil if there is nothing to hold: no quota, and the namespace is not guarded.
func (c *clerk) reserve(ctx context.Context, a ask) (*ticket, error) {
	recounted, wait := false, shareWait
	for attempt := range 20 {
		p, err := c.place(ctx, a, attempt > 0)
		if err != nil {
			if errors.Is(err, errNoNamespace) && !a.Server.Guard.Namespaces {
				return nil, nil // no namespace, hence no quota
			}
			return nil, err
		}
		lim, err := c.quotas.limit(ctx, a.Namespace, a.Resource)
		if err != nil {
			return nil, fmt.Errorf("read the quotas of namespace %s: %w", a.Namespace, err)
		}
		if !a.Server.Guard.Quota {
			lim.Hard = noLimit
		}
		if lim.Hard == noLimit && !a.Server.Guard.Namespaces {
			return nil, nil
		}
		t, used, err := c.enter(ctx, p, a, lim.Hard)
		switch {
		case err == nil:
			return t, nil
		case errors.Is(err, errNotFound):
			err = c.book(p).found(ctx)
		case errors.Is(err, errNotHeld):
			err = c.hold(ctx, p, a.Server.Name)
		case errors.Is(err, errLeaving):
			err = c.leave(ctx, p, a.Server.Name)
		case errors.Is(err, errClosed):
			return nil, errTerminating
		case errors.Is(err, errUncounted), errors.Is(err, errExceeded) && !recounted:
			// What was deleted is given back by a list only: before a create is
			// refused, the list is made.
			recounted = true
			err = c.refresh(ctx, p, a.Server.Name, a.Resource, a.Version)
		case errors.Is(err, errShare) && wait <= shareMost && c.pause(ctx, wait):
			wait, err = 2*wait, nil // most of the user's other creates end soon
		case errors.Is(err, errExceeded):
			return nil, &exceeded{Quota: lim.Quota, Used: used, Hard: lim.Hard}
		}
		if err != nil && !errors.Is(err, errStale) {
			return nil, err
		}
	}
	return nil, errBusy
}

// place finds the namespace's present life; anew, if what is known has misled.
func (c *clerk) place(ctx context.Context, a ask, anew bool) (place, error) {
	ns, ok := c.namespaces.cached(a.Namespace)
	if !ok || ns.Terminating || anew {
		var err error
		ns, err = c.namespaces.get(ctx, a.Namespace)
		if errors.Is(err, errNotFound) {
			return place{}, errNoNamespace
		}
		if err != nil {
			return place{}, fmt.Errorf("read namespace %s: %w", a.Namespace, err)
		}
	}
	if ns.Terminating && a.Server.Guard.Namespaces {
		return place{}, errTerminating
	}
	return place{a.Namespace, ns.UID}, nil
}

// enter writes the flight down. Used is what the ledger said when it refused.
func (c *clerk) enter(ctx context.Context, p place, a ask, hard int64) (*ticket, int64, error) {
	b := c.book(p)
	t := &ticket{ID: rand.Text(), Deadline: time.Now().Add(a.Time), book: b, dirty: c.dirty}
	f := flight{
		Server:   a.Server.Name,
		Resource: a.Resource,
		Version:  a.Version,
		Seconds:  int64((a.Time + c.settle + time.Second - 1) / time.Second),
		By:       a.By,
		User:     userKey(a.User),
	}
	var used int64
	err := b.do(ctx, func(l *ledger) error {
		used = l.Counts[a.Resource].Used
		return l.reserve(t.ID, f, hard, a.Server.Guard.Namespaces)
	})
	switch {
	case err == nil:
		return t, 0, nil
	case refusal(err):
		return nil, used, err
	}
	t.returned() // it may be written, or still come to be
	return nil, 0, err
}

// refusal says that the ledger was read and the step not taken.
func refusal(err error) bool {
	for _, r := range []error{errNotFound, errClosed, errNotHeld, errLeaving, errUncounted, errExceeded, errCrowded, errShare, errStale} {
		if errors.Is(err, r) {
			return true
		}
	}
	return false
}

// hold puts the server's finalizer on the namespace, and then says so in the
// ledger. The ledger is read before the namespace is: a ledger that is still the
// same when it is written has not been closed since the namespace was seen
// alive, nor has the finalizer been taken off.
func (c *clerk) hold(ctx context.Context, p place, server string) error {
	b := c.book(p)
	l, _, err := b.look(ctx)
	if err != nil {
		return err
	}
	if err := c.finalizer(ctx, p, server, true, nil); err != nil {
		return err
	}
	err = b.do(ctx, func(now *ledger) error { return now.hold(server, l.Born, l.Left) })
	if errors.Is(err, errLeaving) {
		return c.leave(ctx, p, server)
	}
	return err
}

// finalizer puts a server's finalizer on a namespace, or takes it off. Before
// each attempt to take it off, and after the namespace was read, sure is asked.
func (c *clerk) finalizer(ctx context.Context, p place, server string, on bool, sure func() error) error {
	want := FinalizerFor(server)
	for wait := commitWait; ; wait = min(2*wait, commitMost) {
		ns, err := c.namespaces.get(ctx, p.Name)
		gone := errors.Is(err, errNotFound) || err == nil && ns.UID != p.UID
		switch {
		case gone && on:
			return errStale // there may be another of its name
		case gone:
			return nil
		case err != nil:
			return fmt.Errorf("read namespace %s: %w", p.Name, err)
		case on && ns.Terminating:
			return errTerminating
		case slices.Contains(ns.Finalizers, want) == on:
			return nil
		}
		if sure != nil {
			if err := sure(); err != nil {
				return err
			}
		}
		finalizers := append(slices.Clone(ns.Finalizers), want)
		if !on {
			finalizers = slices.DeleteFunc(slices.Clone(ns.Finalizers), func(f string) bool { return f == want })
		}
		err = c.namespaces.finalize(ctx, p.Name, ns, finalizers)
		if err == nil {
			return nil
		}
		if !c.pause(ctx, wait) {
			return fmt.Errorf("finalize namespace %s: %w", p.Name, err)
		}
	}
}

// release takes the finalizer of a server off a living namespace in which the
// server holds nothing, so that the server cannot hold the namespace up.
func (c *clerk) release(ctx context.Context, p place, server string) error {
	b := c.book(p)
	l, _, err := b.look(ctx)
	if err != nil {
		return err
	}
	if l.Closed || l.flyingTo(server) > 0 {
		return nil
	}
	if l.Held[server] == held {
		holds, err := c.inventory.holds(ctx, server, p.Name, l.known())
		if err != nil || holds {
			return err
		}
		err = b.do(ctx, func(now *ledger) error { return now.leave(server, l.Born, l.everLanded()) })
		if err != nil {
			if errors.Is(err, errStale) {
				return nil // something came; another time
			}
			return err
		}
	}
	return c.leave(ctx, p, server)
}

// leave ends what release began, here or at another gateway. The namespace is
// read before the ledger: if the ledger still says leaving then, whoever else
// takes the finalizer off before us changes the namespace, and ours conflicts.
func (c *clerk) leave(ctx context.Context, p place, server string) error {
	b := c.book(p)
	l, _, err := b.look(ctx)
	if err != nil || l.Held[server] != leaving {
		return err
	}
	err = c.finalizer(ctx, p, server, false, func() error {
		now, _, err := b.look(ctx)
		if err == nil && (now.Born != l.Born || now.Left != l.Left || now.Held[server] != leaving) {
			err = errStale
		}
		return err
	})
	if err == nil {
		err = b.do(ctx, func(now *ledger) error { return now.left(server, l.Born, l.Left) })
	}
	if errors.Is(err, errStale) {
		return nil // another gateway has ended it
	}
	return err
}

// refresh recounts a resource, unless somebody else here begins to and ends
// while it waits: many creates that find a quota used up share a list or two.
func (c *clerk) refresh(ctx context.Context, p place, server, resource, version string) error {
	turn := c.book(p).counting(resource)
	begun := turn.begun.Load()
	select {
	case turn.token <- struct{}{}:
		defer func() { <-turn.token }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if turn.begun.Load() > begun && turn.well {
		return nil
	}
	turn.begun.Add(1)
	err := c.recount(ctx, p, server, resource, version, nil)
	turn.well = err == nil
	return err
}

// recount lists a resource and takes the outcome in; the flights in lapsed have
// lapsed. Without a version it is the one of the last create.
func (c *clerk) recount(ctx context.Context, p place, server, resource, version string, lapsed []string) error {
	b := c.book(p)
	l, _, err := b.look(ctx)
	if err != nil {
		return err
	}
	if version == "" {
		version = l.Counts[resource].Version
	}
	n, err := c.inventory.count(ctx, server, resource, version, p.Name)
	if err != nil {
		return fmt.Errorf("count %s in namespace %s at server %s: %w", resource, p.Name, server, err)
	}
	r := recount{Resource: resource, Born: l.Born, Landed: l.Counts[resource].Landed, Lapsed: lapsed, Listed: n}
	return b.do(ctx, func(now *ledger) error { return now.recount(r) })
}

// arrived counts an object that came without a flight: an update that was let
// through because its object was there has made it anew.
func (c *clerk) arrived(p place, resource string) {
	c.book(p).soon(func(l *ledger) error { l.arrived(resource); return nil })
	c.dirty(p)
}

// lapsed are the flights that have been watched here for as long as they may
// live, by id in order.
func (c *clerk) lapsed(p place, l *ledger) []string {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	before, seen := c.seen[p], map[string]time.Time{}
	var over []string
	for id, f := range l.Flights {
		first, ok := before[id]
		if !ok {
			first = now
		}
		seen[id] = first
		if now.Sub(first) >= time.Duration(f.Seconds)*time.Second {
			over = append(over, id)
		}
	}
	c.seen[p] = seen
	slices.Sort(over)
	return over
}

// sweep takes the lapsed flights that a server tends out of the ledger. Those of a counted
// resource leave with a list of it; if that fails they stay until it does not.
func (c *clerk) sweep(ctx context.Context, p place, server string) error {
	b := c.book(p)
	l, _, err := b.look(ctx)
	if err != nil {
		return err
	}
	counted := map[string]bool{}
	var over, plain []string
	for _, id := range c.lapsed(p, l) {
		switch f := l.Flights[id]; {
		case c.tender(f) != server:
		case l.Counts[f.Resource].Counted && !l.Closed:
			counted[f.Resource] = true
			over = append(over, id)
		default:
			plain = append(plain, id)
		}
	}
	var errs []error
	if len(plain) > 0 {
		errs = append(errs, b.do(ctx, func(now *ledger) error { now.lapse(plain); return nil }))
	}
	for _, resource := range slices.Sorted(maps.Keys(counted)) {
		errs = append(errs, c.recount(ctx, p, server, resource, "", over))
	}
	return errors.Join(errs...)
}

// depart empties a namespace that is being deleted at one server, and takes the
// server's finalizer off it. It reports false if there is something left to wait
// for.
func (c *clerk) depart(ctx context.Context, p place, server string) (bool, error) {
	b := c.book(p)
	l, err := c.close(ctx, b)
	if err != nil {
		return false, err
	}
	if l.flyingTo(server) > 0 {
		return false, nil
	}
	if empty, err := c.inventory.empty(ctx, server, p.Name, l.known()); err != nil || !empty {
		return false, err
	}
	return true, c.finalizer(ctx, p, server, false, nil)
}

// close closes the ledger, a new one if there is none, and returns it: no
// flight comes after those that it has.
func (c *clerk) close(ctx context.Context, b *book) (*ledger, error) {
	var closed *ledger
	step := func(l *ledger) error {
		l.Closed = true
		closed = l.clone()
		return nil
	}
	err := b.do(ctx, step)
	if errors.Is(err, errNotFound) {
		if err := b.found(ctx); err != nil {
			return nil, err
		}
		err = b.do(ctx, step)
	}
	return closed, err
}

// discard removes the ledger of a namespace that is gone, once no flight is in
// it but lapsed ones to servers that are no longer registered. It reports whether
// the namespace is gone and nothing is left of it here.
func (c *clerk) discard(ctx context.Context, p place) (bool, error) {
	ns, err := c.namespaces.get(ctx, p.Name)
	if err == nil && ns.UID == p.UID {
		return false, nil
	}
	if err != nil && !errors.Is(err, errNotFound) {
		return false, fmt.Errorf("read namespace %s: %w", p.Name, err)
	}
	l, version, err := c.book(p).look(ctx)
	if err == nil {
		over := c.lapsed(p, l)
		for id, f := range l.Flights {
			if c.tender(f) == f.Server || !slices.Contains(over, id) {
				return false, nil
			}
		}
		err = c.store.remove(ctx, p, version)
	}
	if err != nil && !errors.Is(err, errNotFound) {
		return false, err
	}
	c.forget(p)
	return true, nil
}

// rehearse says whether reserve would let the create in, and changes nothing
// but what is known of the count.
func (c *clerk) rehearse(ctx context.Context, a ask) error {
	p, err := c.place(ctx, a, false)
	if err != nil {
		if errors.Is(err, errNoNamespace) && !a.Server.Guard.Namespaces {
			return nil
		}
		return err
	}
	lim, err := c.quotas.limit(ctx, a.Namespace, a.Resource)
	if err != nil {
		return fmt.Errorf("read the quotas of namespace %s: %w", a.Namespace, err)
	}
	if !a.Server.Guard.Quota || lim.Hard == noLimit {
		return nil
	}
	for again := false; ; again = true {
		l, _, err := c.book(p).look(ctx)
		if errors.Is(err, errNotFound) {
			if lim.Hard > 0 {
				return nil // nothing was ever created here
			}
			return &exceeded{Quota: lim.Quota}
		}
		if err != nil {
			return err
		}
		n := l.Counts[a.Resource]
		if n.Counted && n.Used+1 <= lim.Hard {
			return nil
		}
		if again {
			return &exceeded{Quota: lim.Quota, Used: n.Used, Hard: lim.Hard}
		}
		if err := c.refresh(ctx, p, a.Server.Name, a.Resource, a.Version); err != nil {
			return err
		}
	}
}
