// Package upkeep keeps the invariants of package policy, whatever dies or changes: it ends
// pending creates that have expired, counts the objects that exist, shows the counts in the
// quotas, and empties namespaces that are being deleted. It never takes part in a request.
package upkeep

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/xbernetes/xbernetes/internal/gateway/policy/core"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/ledger"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/namespaces"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/quota"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/servers"
)

// How long a task waits, so that changes that come together make one task.
const (
	writeDelay   = 20 * time.Millisecond  // outcomes of creates are written together
	showDelay    = 200 * time.Millisecond // quotas show what is used at most that often
	recountDelay = 100 * time.Millisecond // deletes are counted together
	inexactDelay = 2 * time.Second        // a count that was made while creates were pending is made again
	drainDelay   = time.Second            // a namespace waits that long for pending creates
)

// Config configures an Upkeep. All fields are required.
type Config struct {
	Servers    servers.Registry
	Namespaces *namespaces.Keeper
	Counter    *quota.Counter
	Ledgers    *ledger.Set
	Quotas     *core.Quotas
	Log        *slog.Logger
}

// Upkeep decides which namespaces to look at, and does there what is needed. Any number of
// gateways may do so at once.
type Upkeep struct {
	Config
	lanes *lanes
	due   due
}

// New makes an Upkeep. It does nothing until Run.
func New(cfg Config) *Upkeep {
	u := &Upkeep{Config: cfg, due: due{tasks: map[task]bool{}}}
	u.lanes = newLanes(u.do, u.failed)
	return u
}

// Run watches the core server and looks after every namespace until ctx ends. It
// looks at everything anew each time that resync has passed.
func (u *Upkeep) Run(ctx context.Context, server *core.Server, resync time.Duration) {
	defer server.Shutdown()
	u.lanes.run(ctx, func() {
		server.Start(ctx)
		tick := time.NewTicker(resync)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				u.lookAtAll(server)
			}
		}
	})
}

// Queued has the queued changes of a ledger's handle written.
func (u *Upkeep) Queued(at ledger.Key) { u.lanes.after(task{at: at, lane: laneWrite}, writeDelay) }

// RecountSoon has a server's resources in a namespace counted, because an object
// may have been deleted or created there.
func (u *Upkeep) RecountSoon(server, namespace string) {
	ns, ok := u.Namespaces.Core.Cached(namespace)
	if !ok {
		return // before Run, or there is no such namespace
	}
	t := task{at: ledger.Key{Namespace: namespace, UID: ns.UID}, lane: server}
	u.due.set(t)
	u.lanes.after(t, recountDelay)
}

// SawNamespace implements core.Watcher.
func (u *Upkeep) SawNamespace(ns *corev1.Namespace) {
	at := ledger.Key{Namespace: ns.Name, UID: string(ns.UID)}
	u.lanes.after(task{at: at}, 0)
	if all, ok := u.Quotas.Cached(ns.Name); ok {
		u.countNew(at, all)
	}
	for _, server := range u.holding(ns) {
		u.lanes.after(task{at: at, lane: server}, 0)
	}
}

// SawQuota implements core.Watcher.
func (u *Upkeep) SawQuota(q *corev1.ResourceQuota) {
	ns, ok := u.Namespaces.Core.Cached(q.Namespace)
	if !ok {
		return // SawNamespace finds the quota
	}
	at := ledger.Key{Namespace: q.Namespace, UID: ns.UID}
	u.lanes.after(task{at: at}, showDelay)
	u.countNew(at, []*corev1.ResourceQuota{q})
}

// SawLedger implements core.Watcher.
func (u *Upkeep) SawLedger(at ledger.Key) { u.lanes.after(task{at: at}, showDelay) }

// countNew has resources counted that a quota limits and does not show yet.
func (u *Upkeep) countNew(at ledger.Key, all []*corev1.ResourceQuota) {
	for _, q := range all {
		for r := range core.Limited([]*corev1.ResourceQuota{q}) {
			if _, shown := q.Status.Used[corev1.ResourceName(core.CountPrefix+r)]; shown {
				continue
			}
			if s, ok := u.serverOf(r); ok && s.Guard.Quota {
				u.lanes.after(task{at: at, lane: s.Name}, 0)
			}
		}
	}
}

// serverOf is the server that requests for a resource, as resource.group, go to.
func (u *Upkeep) serverOf(resource string) (servers.Server, bool) {
	return u.Servers.For(schema.ParseGroupResource(resource).Group)
}

func (u *Upkeep) registered(server string) bool { return slices.Contains(u.Servers.Names(), server) }

// holding are the registered servers whose finalizer is on a namespace.
func (u *Upkeep) holding(ns *corev1.Namespace) []string {
	read := core.NamespaceOf(ns)
	return slices.DeleteFunc(slices.Clone(u.Servers.Names()), func(server string) bool { return !read.Has(server) })
}

// lookAtAll has every ledger and every namespace looked at, and everything counted.
func (u *Upkeep) lookAtAll(server *core.Server) {
	u.lanes.prune(u.registered)
	for at, text := range server.AllLedgers() {
		u.lanes.after(task{at: at}, 0)
		l, err := ledger.Parse(text)
		if err != nil {
			continue
		}
		for _, server := range l.Servers() {
			t := task{at: at, lane: server}
			u.due.set(t)
			u.lanes.after(t, 0)
		}
	}
	for _, ns := range server.AllNamespaces() {
		if len(u.holding(ns)) > 0 {
			u.SawNamespace(ns)
		}
	}
	for _, q := range server.AllQuotas() {
		u.SawQuota(q) // its server may be registered since
	}
}

// do does one task. It decides from what it finds, not from what has happened, so
// that nothing is lost if a task is dropped, fails or is done twice.
func (u *Upkeep) do(ctx context.Context, t task) (again time.Duration, err error) {
	switch t.lane {
	case laneWrite:
		err = u.Ledgers.At(t.at).Flush(ctx)
		if errors.Is(err, ledger.ErrNotFound) {
			err = nil // the ledger is gone, and the changes with it
		}
	case laneCore:
		again, err = u.lookAtLedger(ctx, t.at)
	default:
		again, err = u.lookAtServer(ctx, t)
	}
	return again, err
}

// failed logs a task that failed: the first time as a warning, then until it
// succeeds for debugging only.
func (u *Upkeep) failed(t task, err error, before int) {
	level := slog.LevelWarn
	if before > 0 || apierrors.IsConflict(err) || errors.Is(err, ledger.ErrConflict) {
		level = slog.LevelDebug
	}
	u.Log.Log(context.Background(), level, "a namespace's policies could not be looked after; it is tried again until it can",
		"namespace", t.at.Namespace, "server", t.lane, "err", err)
}

// lookAtLedger shows in the quotas what is used, has servers looked at if there is
// something to do there, and drops the ledger of a namespace that is gone.
func (u *Upkeep) lookAtLedger(ctx context.Context, at ledger.Key) (time.Duration, error) {
	l, _, err := u.Ledgers.At(at).Read(ctx)
	if errors.Is(err, ledger.ErrNotFound) {
		u.Ledgers.Forget(at)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	ns, known := u.Namespaces.Core.Cached(at.Namespace)
	if !known || ns.UID != at.UID {
		gone, err := u.Namespaces.Discard(ctx, at, u.registered)
		if err != nil || gone {
			return 0, err
		}
	}
	u.wake(at, l, ns)
	again := firstExpiry(l)
	if known && ns.UID == at.UID && !l.Draining {
		return again, u.Quotas.Publish(ctx, at.Namespace, u.used(l))
	}
	return again, nil
}

// used is what the quotas should show as used.
func (u *Upkeep) used(l *ledger.Ledger) map[string]int64 {
	used := map[string]int64{}
	for r, c := range l.Counts {
		if s, ok := u.serverOf(r); ok && s.Guard.Quota && c.Counted {
			used[r] = c.Used
		}
	}
	return used
}

// wake has the servers looked at at which there is something to do in the namespace.
func (u *Upkeep) wake(at ledger.Key, l *ledger.Ledger, ns namespaces.Namespace) {
	for _, id := range u.Ledgers.Expired(at, l) {
		if server := u.expires(l.Pending[id]); server != "" {
			u.lanes.after(task{at: at, lane: server}, 0)
		}
	}
	for r, c := range l.Counts {
		if s, ok := u.serverOf(r); ok && c.Counted && !c.Exact {
			u.lanes.after(task{at: at, lane: s.Name}, inexactDelay)
		}
	}
	if !l.Draining && !ns.Terminating {
		if all, ok := u.Quotas.Cached(at.Namespace); ok {
			for r := range core.Limited(all) {
				if s, ok := u.serverOf(r); ok && s.Guard.Quota && !l.Counts[r].Counted {
					u.lanes.after(task{at: at, lane: s.Name}, 0)
				}
			}
		}
	}
	for server, hold := range l.Held {
		if hold == ledger.Releasing {
			u.lanes.after(task{at: at, lane: server}, 0)
		}
	}
}

// firstExpiry is when to look at a ledger again because a pending create may have
// expired; 0 if none is pending.
func firstExpiry(l *ledger.Ledger) time.Duration {
	first := time.Duration(0)
	for _, f := range l.Pending {
		if life := time.Duration(f.Seconds)*time.Second + 100*time.Millisecond; first == 0 || life < first {
			first = life
		}
	}
	return first
}

// expires is the server at whose look an expired create ends: the create's own. If
// that is not registered any more, it is the server that has the resource now, as
// objects are counted there; "" if there is none.
func (u *Upkeep) expires(f ledger.Create) string {
	if u.registered(f.Server) {
		return f.Server
	}
	s, _ := u.serverOf(f.Resource)
	return s.Name
}
