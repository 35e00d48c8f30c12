// Package namespaces keeps the servers' finalizers on the core server's namespaces
// true to the ledgers: it puts one on before a server may hold an object, drains a
// namespace that is being deleted, and takes the finalizer off again. It never
// counts objects and never sees a request.
package namespaces

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/xbernetes/xbernetes/internal/gateway/policy/ledger"
)

// Why nothing can be created in a namespace.
var (
	ErrMissing     = errors.New("the namespace does not exist")
	ErrTerminating = errors.New("the namespace is being deleted")
)

// Namespace is what the core server says of a namespace.
type Namespace struct {
	UID         string
	Terminating bool
	Finalizers  []string // of its spec
	Version     string
}

// Has says whether a server's finalizer is on the namespace.
func (n Namespace) Has(server string) bool { return slices.Contains(n.Finalizers, Finalizer(server)) }

// Core has the core server's namespaces.
type Core interface {
	// Cached answers from memory: what it returns may be old, and is false if
	// nothing is known.
	Cached(name string) (Namespace, bool)
	// Get asks the core server; ledger.ErrNotFound if there is no such namespace.
	Get(ctx context.Context, name string) (Namespace, error)
	// Finalize replaces the finalizers of ns, as it was read. It returns
	// ledger.ErrConflict if the namespace has changed since. After any other error
	// the outcome is unknown.
	Finalize(ctx context.Context, name string, ns Namespace, finalizers []string) error
}

// Inventory is what servers hold, asked of the servers themselves. known has
// resources that the ledger knows of, with a version of each; they are looked at
// beside those that the server's discovery shows.
type Inventory interface {
	// Holds says whether the server has an object in the namespace.
	Holds(ctx context.Context, server, namespace string, known map[string]string) (bool, error)
	// Empty deletes what the namespace has at the server, and says whether a list
	// after that showed nothing.
	Empty(ctx context.Context, server, namespace string, known map[string]string) (bool, error)
}

// Keeper keeps finalizers and ledgers together. Each step of its methods may be
// the last, because the gateway dies, or be taken by several gateways at once. It
// is safe for concurrent use.
type Keeper struct {
	Core      Core
	Inventory Inventory
	Ledgers   *ledger.Set
	Pause     ledger.Pause
}

const (
	// The pause before the second attempt to change a finalizer, and the longest;
	// it doubles in between.
	finalizePauseFirst = 4 * time.Millisecond
	finalizePauseMost  = 250 * time.Millisecond
)

// Find returns a namespace, from memory if that will do: fresh says that what is
// in memory has turned out to be old. The error is ErrMissing if there is none.
func (k *Keeper) Find(ctx context.Context, name string, fresh bool) (Namespace, error) {
	ns, ok := k.Core.Cached(name)
	if ok && !ns.Terminating && !fresh {
		return ns, nil
	}
	ns, err := k.Core.Get(ctx, name)
	if errors.Is(err, ledger.ErrNotFound) {
		return Namespace{}, ErrMissing
	}
	if err != nil {
		return Namespace{}, fmt.Errorf("read namespace %s: %w", name, err)
	}
	return ns, nil
}

// Hold puts the server's finalizer on the namespace, and then records that in the
// ledger. It reads the ledger before the namespace. If that ledger is still the
// same when Hold writes, then it was not draining when the namespace was seen
// alive, and the finalizer has not been taken off since.
func (k *Keeper) Hold(ctx context.Context, at ledger.Key, server string) error {
	h := k.Ledgers.At(at)
	l, _, err := h.Read(ctx)
	if err != nil {
		return err
	}
	if err := k.put(ctx, at, server); err != nil {
		return err
	}
	err = h.Update(ctx, func(now *ledger.Ledger) error { return now.Hold(server, l.Born, l.Released) })
	if errors.Is(err, ledger.ErrReleasing) {
		return k.EndRelease(ctx, at, server)
	}
	return err
}

// put puts a server's finalizer on a namespace.
func (k *Keeper) put(ctx context.Context, at ledger.Key, server string) error {
	return k.finalize(ctx, at, server, true, nil)
}

// takeOff takes a server's finalizer off a namespace. Before each attempt, and
// after the namespace was read, it calls confirm, if that is not nil.
func (k *Keeper) takeOff(ctx context.Context, at ledger.Key, server string, confirm func() error) error {
	return k.finalize(ctx, at, server, false, confirm)
}

// finalize is put if on, and takeOff if not.
func (k *Keeper) finalize(ctx context.Context, at ledger.Key, server string, on bool, confirm func() error) error {
	for wait := finalizePauseFirst; ; wait = min(2*wait, finalizePauseMost) {
		ns, err := k.Core.Get(ctx, at.Namespace)
		gone := errors.Is(err, ledger.ErrNotFound) || err == nil && ns.UID != at.UID
		switch {
		case gone && on:
			return ledger.ErrStale // there may be another namespace of that name
		case gone:
			return nil
		case err != nil:
			return fmt.Errorf("read namespace %s: %w", at.Namespace, err)
		case on && ns.Terminating:
			return ErrTerminating
		case ns.Has(server) == on:
			return nil
		}
		if confirm != nil {
			if err := confirm(); err != nil {
				return err
			}
		}
		finalizers := append(slices.Clone(ns.Finalizers), Finalizer(server))
		if !on {
			finalizers = slices.DeleteFunc(slices.Clone(ns.Finalizers), func(f string) bool { return f == Finalizer(server) })
		}
		err = k.Core.Finalize(ctx, at.Namespace, ns, finalizers)
		if err == nil {
			return nil
		}
		if !k.Pause(ctx, wait) {
			return fmt.Errorf("finalize namespace %s: %w", at.Namespace, err)
		}
	}
}

// Release takes a server's finalizer off a living namespace if the server holds
// nothing in it, so that the server cannot hold up the namespace's deletion.
func (k *Keeper) Release(ctx context.Context, at ledger.Key, server string) error {
	h := k.Ledgers.At(at)
	l, _, err := h.Read(ctx)
	if err != nil {
		return err
	}
	if l.Draining || l.PendingAt(server) > 0 {
		return nil
	}
	if l.Held[server] == ledger.Held {
		holds, err := k.Inventory.Holds(ctx, server, at.Namespace, l.Versions())
		if err != nil || holds {
			return err
		}
		err = h.Update(ctx, func(now *ledger.Ledger) error { return now.BeginRelease(server, l.Born, l.EverLanded()) })
		if errors.Is(err, ledger.ErrStale) {
			return nil // an object may have been created; the next look decides again
		}
		if err != nil {
			return err
		}
	}
	return k.EndRelease(ctx, at, server)
}

// EndRelease ends what Release began, here or at another gateway. It reads the
// namespace before it confirms that the ledger still says Releasing: if another
// gateway takes the finalizer off before us, that changes the namespace, and our
// write conflicts.
func (k *Keeper) EndRelease(ctx context.Context, at ledger.Key, server string) error {
	h := k.Ledgers.At(at)
	l, _, err := h.Read(ctx)
	if err != nil || l.Held[server] != ledger.Releasing {
		return err
	}
	err = k.takeOff(ctx, at, server, func() error {
		now, _, err := h.Read(ctx)
		if err == nil && (now.Born != l.Born || now.Released != l.Released || now.Held[server] != ledger.Releasing) {
			err = ledger.ErrStale
		}
		return err
	})
	if err == nil {
		err = h.Update(ctx, func(now *ledger.Ledger) error { return now.EndRelease(server, l.Born, l.Released) })
	}
	if errors.Is(err, ledger.ErrStale) {
		return nil // another gateway has ended it
	}
	return err
}

// Drain empties a namespace that is being deleted at one server, and takes the
// server's finalizer off. It returns false if the server still has objects there
// or a create is pending: call it again later.
func (k *Keeper) Drain(ctx context.Context, at ledger.Key, server string) (bool, error) {
	l, err := k.beginDrain(ctx, k.Ledgers.At(at))
	if err != nil {
		return false, err
	}
	if l.PendingAt(server) > 0 {
		return false, nil
	}
	if empty, err := k.Inventory.Empty(ctx, server, at.Namespace, l.Versions()); err != nil || !empty {
		return false, err
	}
	return true, k.takeOff(ctx, at, server, nil)
}

// beginDrain makes the ledger refuse creates, and returns it. It makes a ledger if
// there is none.
func (k *Keeper) beginDrain(ctx context.Context, h *ledger.Handle) (*ledger.Ledger, error) {
	var draining *ledger.Ledger
	begin := func(l *ledger.Ledger) error {
		l.Draining = true
		draining = l.Clone()
		return nil
	}
	err := h.Update(ctx, begin)
	if errors.Is(err, ledger.ErrNotFound) {
		if err := h.Create(ctx); err != nil {
			return nil, err
		}
		err = h.Update(ctx, begin)
	}
	return draining, err
}

// Reconcile ends what a gateway that died has begun, and puts the finalizer back
// if somebody has taken it off. on says that the finalizer is on the namespace. If
// recheck is set, it also takes the finalizer off if the server holds nothing.
func (k *Keeper) Reconcile(ctx context.Context, at ledger.Key, server string, on, recheck bool) error {
	h := k.Ledgers.At(at)
	l, _, err := h.Read(ctx)
	if errors.Is(err, ledger.ErrNotFound) {
		if !on {
			return nil
		}
		l, err = h.ReadOrCreate(ctx)
	}
	if err != nil {
		return err
	}
	switch hold, ok := l.Held[server]; {
	case on && !ok: // a gateway died between the two steps of Hold
		err = k.Hold(ctx, at, server)
	case !on && hold == ledger.Held:
		err = k.put(ctx, at, server)
	case hold == ledger.Releasing, hold == ledger.Held && recheck:
		err = k.Release(ctx, at, server)
	}
	if ledger.Refused(err) || errors.Is(err, ErrMissing) || errors.Is(err, ErrTerminating) {
		return nil // the namespace or its ledger has changed since; the next look decides again
	}
	return err
}

// Discard removes the ledger of a namespace that is gone, once no create is
// pending but expired ones to servers that are not registered any more. It returns
// true if the namespace is gone and nothing is left of it here.
func (k *Keeper) Discard(ctx context.Context, at ledger.Key, registered func(server string) bool) (bool, error) {
	ns, err := k.Core.Get(ctx, at.Namespace)
	if err == nil && ns.UID == at.UID {
		return false, nil
	}
	if err != nil && !errors.Is(err, ledger.ErrNotFound) {
		return false, fmt.Errorf("read namespace %s: %w", at.Namespace, err)
	}
	h := k.Ledgers.At(at)
	l, version, err := h.Read(ctx)
	if err == nil {
		expired := k.Ledgers.Expired(at, l)
		for id, f := range l.Pending {
			if registered(f.Server) || !slices.Contains(expired, id) {
				return false, nil
			}
		}
		err = h.Remove(ctx, version)
	}
	if err != nil && !errors.Is(err, ledger.ErrNotFound) {
		return false, err
	}
	k.Ledgers.Forget(at)
	return true, nil
}
