package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	writeDelay   = 20 * time.Millisecond  // outcomes of creates are written together
	showDelay    = 200 * time.Millisecond // quotas show what is used no more often
	recountDelay = 100 * time.Millisecond // deletes are given back together
	inexactDelay = 2 * time.Second        // a count with creates under way is made again
	drainDelay   = time.Second            // a namespace waits for creates under way
)

// tend does one task. It is level-triggered: whatever is wrong is found again.
func (g *Guard) tend(ctx context.Context, t task) (time.Duration, error) {
	var again time.Duration
	var err error
	switch t.lane {
	case laneWrite:
		err = g.clerk.book(t.place).settle(ctx)
		if errors.Is(err, errNotFound) {
			err = nil // nothing is left to write to
		}
	case laneCore:
		again, err = g.tendLedger(ctx, t.place)
	default:
		again, err = g.tendServer(ctx, t)
	}
	return again, err
}

// untended tells of a task that failed: once aloud, until it succeeds.
func (g *Guard) untended(t task, err error, before int) {
	level := slog.LevelWarn
	if before > 0 || apierrors.IsConflict(err) || errors.Is(err, errConflict) {
		level = slog.LevelDebug
	}
	g.log.Log(context.Background(), level, "a namespace's policies could not be looked after; it is tried again until it can",
		"namespace", t.place.Name, "server", t.lane, "err", err)
}

// tendLedger shows what is used, has servers asked where that is needed, and
// drops the ledger of a namespace that is gone.
func (g *Guard) tendLedger(ctx context.Context, p place) (time.Duration, error) {
	l, _, err := g.clerk.book(p).look(ctx)
	if errors.Is(err, errNotFound) {
		g.clerk.forget(p)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	ns, known := g.clerk.namespaces.cached(p.Name)
	if !known || ns.UID != p.UID {
		gone, err := g.clerk.discard(ctx, p)
		if err != nil || gone {
			return 0, err
		}
	}
	again := g.wake(p, l, ns)
	if known && ns.UID == p.UID && !l.Closed {
		return again, g.quotas.publish(ctx, p.Name, g.shown(l))
	}
	return again, nil
}

// shown is what quotas should say is used.
func (g *Guard) shown(l *ledger) map[string]int64 {
	used := map[string]int64{}
	for r, c := range l.Counts {
		if s, ok := g.servers.For(groupResource(r).Group); ok && s.Guard.Quota && c.Counted {
			used[r] = c.Used
		}
	}
	return used
}

// wake has each server looked at that has something to do, and returns when to
// look at the ledger again.
func (g *Guard) wake(p place, l *ledger, ns namespace) time.Duration {
	over := g.clerk.lapsed(p, l)
	again := time.Duration(0)
	for _, f := range l.Flights { // watched until they are gone
		if life := time.Duration(f.Seconds)*time.Second + 100*time.Millisecond; again == 0 || life < again {
			again = life
		}
	}
	for _, id := range over {
		if server := g.tender(l.Flights[id]); server != "" {
			g.lanes.after(task{place: p, lane: server}, 0)
		}
	}
	for r, c := range l.Counts {
		if s, ok := g.servers.For(groupResource(r).Group); ok && c.Counted && !c.Exact {
			g.lanes.after(task{place: p, lane: s.Name}, inexactDelay)
		}
	}
	if !l.Closed && !ns.Terminating {
		if all, ok := g.quotas.lister(p.Name); ok {
			for r := range limited(all) {
				if s, ok := g.servers.For(groupResource(r).Group); ok && s.Guard.Quota && !l.Counts[r].Counted {
					g.lanes.after(task{place: p, lane: s.Name}, 0)
				}
			}
		}
	}
	for server, h := range l.Held {
		if h == leaving {
			g.lanes.after(task{place: p, lane: server}, 0)
		}
	}
	return again
}

// tender is who takes a flight out once it has lapsed. One to a server that is
// no longer registered is left to the one that has its group now: what counts
// is there.
func (g *Guard) tender(f flight) string {
	if slices.Contains(g.servers.Names(), f.Server) {
		return f.Server
	}
	s, _ := g.servers.For(groupResource(f.Resource).Group)
	return s.Name
}

// tendServer looks after one namespace at one server. What was due stays so if
// it fails.
func (g *Guard) tendServer(ctx context.Context, t task) (again time.Duration, err error) {
	p, server, due := t.place, t.lane, g.take(t)
	defer func() {
		if err != nil {
			g.again(t, due)
		}
	}()
	if !slices.Contains(g.servers.Names(), server) {
		return 0, nil // it comes back when the server does, or with the next resync
	}
	ns, err := g.clerk.namespaces.get(ctx, p.Name)
	if err != nil && !errors.Is(err, errNotFound) {
		return 0, fmt.Errorf("read namespace %s: %w", p.Name, err)
	}
	if err := g.clerk.sweep(ctx, p, server); err != nil && !errors.Is(err, errNotFound) {
		return 0, err
	}
	on := slices.Contains(ns.Finalizers, FinalizerFor(server))
	switch {
	case err != nil || ns.UID != p.UID:
		return 0, nil
	case ns.Terminating && on:
		return g.depart(ctx, p, server)
	case ns.Terminating:
		return 0, nil
	}
	if err := g.recountAll(ctx, p, server, due); err != nil {
		return 0, err
	}
	return 0, g.adopt(ctx, p, server, on, due)
}

// again makes a task due once more, which was and failed.
func (g *Guard) again(t task, due bool) {
	if due {
		g.mu.Lock()
		g.due[t] = true
		g.mu.Unlock()
	}
}

func (g *Guard) depart(ctx context.Context, p place, server string) (time.Duration, error) {
	done, err := g.clerk.depart(ctx, p, server)
	if err != nil {
		return 0, fmt.Errorf("empty namespace %s at server %s: %w", p.Name, server, err)
	}
	if !done {
		return drainDelay, nil
	}
	g.log.Info("a namespace that is being deleted is empty at a server", "namespace", p.Name, "server", server)
	return 0, nil
}

// recountAll counts a server's resources that quotas limit: all if due, else
// those whose count is missing or not exact.
func (g *Guard) recountAll(ctx context.Context, p place, server string, due bool) error {
	all, err := g.quotas.in(ctx, p.Name)
	if err != nil {
		return fmt.Errorf("list the quotas of namespace %s: %w", p.Name, err)
	}
	b, limits := g.clerk.book(p), limited(all)
	if err := g.uncount(ctx, b, server, limits); err != nil {
		return err
	}
	for _, r := range slices.Sorted(maps.Keys(limits)) {
		s, ok := g.servers.For(groupResource(r).Group)
		if !ok || s.Name != server || !s.Guard.Quota {
			continue
		}
		l, _, err := b.look(ctx)
		if errors.Is(err, errNotFound) {
			if err := b.found(ctx); err != nil {
				return err
			}
			l, _, err = b.look(ctx)
		}
		if err != nil {
			return err
		}
		if c := l.Counts[r]; due || !c.Counted || !c.Exact {
			if err := g.clerk.recount(ctx, p, server, r, "", nil); err != nil && !errors.Is(err, errStale) {
				return err
			}
		}
	}
	return nil
}

// uncount ends the counting of a server's resources that no quota limits now.
func (g *Guard) uncount(ctx context.Context, b *book, server string, limits map[string]bool) error {
	l, _, err := b.look(ctx)
	if errors.Is(err, errNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	var free []string
	for r, c := range l.Counts {
		if s, ok := g.servers.For(groupResource(r).Group); ok && s.Name == server && c.Counted && !limits[r] {
			free = append(free, r)
		}
	}
	if len(free) == 0 {
		return nil
	}
	return b.do(ctx, func(now *ledger) error {
		for _, r := range free {
			now.uncount(r)
		}
		return nil
	})
}

// adopt brings finalizer and ledger together: it ends what a gateway that died
// has begun, and takes the finalizer off where the server holds nothing.
func (g *Guard) adopt(ctx context.Context, p place, server string, on, due bool) error {
	l, _, err := g.clerk.book(p).look(ctx)
	if errors.Is(err, errNotFound) {
		if !on {
			return nil
		}
		if err := g.clerk.book(p).found(ctx); err != nil {
			return err
		}
		l, _, err = g.clerk.book(p).look(ctx)
	}
	if err != nil {
		return err
	}
	switch h, ok := l.Held[server]; {
	case on && !ok: // a gateway died between the two
		err = g.clerk.hold(ctx, p, server)
	case !on && h == held: // somebody has taken it off
		err = g.clerk.finalizer(ctx, p, server, true, nil)
	case h == leaving, h == held && due:
		err = g.clerk.release(ctx, p, server)
	}
	if refusal(err) || errors.Is(err, errNoNamespace) || errors.Is(err, errTerminating) {
		return nil // something came, or the namespace is going: another time
	}
	return err
}
