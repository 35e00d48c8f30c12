package upkeep

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/xbernetes/xbernetes/internal/gateway/policy/core"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/ledger"
)

// due has the tasks that have to count everything, whether it seems needed or not.
type due struct {
	mu    sync.Mutex
	tasks map[task]bool // guarded by mu
}

func (d *due) set(t task) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tasks[t] = true
}

// take says whether a task is due, and takes it off.
func (d *due) take(t task) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.tasks[t]
	delete(d.tasks, t)
	return was
}

// lookAtServer looks after one namespace at one server. A task that is due stays
// due if it fails.
func (u *Upkeep) lookAtServer(ctx context.Context, t task) (again time.Duration, err error) {
	recheck := u.due.take(t)
	defer func() {
		if err != nil && recheck {
			u.due.set(t)
		}
	}()
	at, server := t.at, t.lane
	if !u.registered(server) {
		return 0, nil // it is looked at when it is registered again
	}
	ns, missing := u.Namespaces.Core.Get(ctx, at.Namespace)
	if missing != nil && !errors.Is(missing, ledger.ErrNotFound) {
		return 0, fmt.Errorf("read namespace %s: %w", at.Namespace, missing)
	}
	err = u.Counter.Expire(ctx, at, server, func(f ledger.Create) bool { return u.expires(f) == server })
	if err != nil && !errors.Is(err, ledger.ErrNotFound) {
		return 0, err
	}
	switch {
	case missing != nil || ns.UID != at.UID:
		return 0, nil
	case ns.Terminating && ns.Has(server):
		return u.drain(ctx, at, server)
	case ns.Terminating:
		return 0, nil
	}
	if err := u.recount(ctx, at, server, recheck); err != nil {
		return 0, err
	}
	return 0, u.Namespaces.Reconcile(ctx, at, server, ns.Has(server), recheck)
}

func (u *Upkeep) drain(ctx context.Context, at ledger.Key, server string) (time.Duration, error) {
	done, err := u.Namespaces.Drain(ctx, at, server)
	if err != nil {
		return 0, fmt.Errorf("empty namespace %s at server %s: %w", at.Namespace, server, err)
	}
	if !done {
		return drainDelay, nil
	}
	u.Log.Info("a namespace that is being deleted is empty at a server", "namespace", at.Namespace, "server", server)
	return 0, nil
}

// recount counts a server's resources that quotas limit: all of them if recheck is
// set, and otherwise those without an exact count.
func (u *Upkeep) recount(ctx context.Context, at ledger.Key, server string, recheck bool) error {
	all, err := u.Quotas.In(ctx, at.Namespace)
	if err != nil {
		return fmt.Errorf("list the quotas of namespace %s: %w", at.Namespace, err)
	}
	limited := core.Limited(all)
	if err := u.uncount(ctx, at, server, limited); err != nil {
		return err
	}
	for _, r := range slices.Sorted(maps.Keys(limited)) {
		s, ok := u.serverOf(r)
		if !ok || s.Name != server || !s.Guard.Quota {
			continue
		}
		l, err := u.Ledgers.At(at).ReadOrCreate(ctx)
		if err != nil {
			return err
		}
		if c := l.Counts[r]; recheck || !c.Counted || !c.Exact {
			if err := u.Counter.Recount(ctx, at, server, r, "", nil); err != nil && !errors.Is(err, ledger.ErrStale) {
				return err
			}
		}
	}
	return nil
}

// uncount ends the counting of a server's resources that no quota limits any more.
func (u *Upkeep) uncount(ctx context.Context, at ledger.Key, server string, limited map[string]bool) error {
	l, _, err := u.Ledgers.At(at).Read(ctx)
	if errors.Is(err, ledger.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	var free []string
	for r, c := range l.Counts {
		if s, ok := u.serverOf(r); ok && s.Name == server && c.Counted && !limited[r] {
			free = append(free, r)
		}
	}
	if len(free) == 0 {
		return nil
	}
	return u.Counter.Uncount(ctx, at, free)
}
