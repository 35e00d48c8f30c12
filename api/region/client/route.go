package client

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/xbernetes/xbernetes/internal/region/route"
	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// routeTimeout is how long a region has to answer a question that another could answer.
const routeTimeout = 5 * time.Second

// Route returns the region that is the home of a name. It asks one region, and remembers the
// answer for this caller: for 30 seconds no region is asked, and after that the home itself
// is asked first, and others only if it does not answer.
func (r *Regions) Route(ctx context.Context, kind Kind, name string) (string, error) {
	if err := checkName(kind, name); err != nil {
		return "", err
	}
	key := r.routeKey(kind, name)
	home, ok := r.routes.Home(key)
	if ok {
		return home, nil
	}
	found, err := asked(ctx, r, home, func(ctx context.Context, in *Region) (Owned, error) { return in.Get(ctx, kind, name) })
	switch {
	case err == nil:
		r.routes.Learn(key, found.Region)
	case !errors.Is(err, ErrAway):
		r.routes.Forget(key)
	}
	return found.Region, err
}

// Doubt says that the region, which Route has returned, does not answer, or does not have what
// was looked for there. The next Route asks again, at most once a second for a name, so that a
// wrong route heals itself and a missing thing costs little.
func (r *Regions) Doubt(kind Kind, name, region string) {
	r.routes.Doubt(r.routeKey(kind, name), region)
}

func (r *Regions) routeKey(kind Kind, name string) route.Key {
	return route.Key{Caller: sha256.Sum256([]byte(r.token)), Kind: string(kind), Name: name}
}

// Get returns the owner of a name, from one active region: the first that answers.
func (r *Regions) Get(ctx context.Context, kind Kind, name string) (Owned, error) {
	return asked(ctx, r, "", func(ctx context.Context, in *Region) (Owned, error) { return in.Get(ctx, kind, name) })
}

// List returns all names of a kind, of all regions, sorted, from one active region: the first
// that answers.
func (r *Regions) List(ctx context.Context, kind Kind) ([]Owned, error) {
	return asked(ctx, r, "", func(ctx context.Context, in *Region) ([]Owned, error) { return in.List(ctx, kind) })
}

// Near returns an active region that answers: the one that is named, or else another.
func (r *Regions) Near(ctx context.Context, region string) (*Region, error) {
	return asked(ctx, r, region, func(_ context.Context, in *Region) (*Region, error) { return in, nil })
}

// asked asks one active region after another until one answers, beginning with the one named
// first. Regions that did not answer lately come last.
func asked[T any](ctx context.Context, r *Regions, first string, ask func(context.Context, *Region) (T, error)) (T, error) {
	var none T
	var failed []error
	for _, name := range r.routes.Order(slices.Collect(maps.Keys(r.config.Regions)), first) {
		in := &Region{r, stored.Region(name)}
		soon, cancel := context.WithTimeout(ctx, routeTimeout)
		answer, err := none, in.active(soon)
		if err == nil { // not before: a region that joins meanwhile does not have all names yet
			answer, err = ask(soon, in)
		}
		cancel()
		away := errors.Is(err, ErrAway)
		if ctx.Err() == nil {
			r.routes.Answered(name, !away)
		}
		if !away && !errors.Is(err, ErrNotMember) {
			return answer, err
		}
		failed = append(failed, err)
	}
	return none, fmt.Errorf("no active region answers: %w", errors.Join(failed...))
}

// active returns nil if the region's own copy of the membership has it as an active member:
// then it has the claims of all names.
func (r *Region) active(ctx context.Context) error {
	found, err := r.read(ctx, stored.ReadOf(r.name.Place(), stored.KindMembership, stored.MembershipName))
	m, _ := found.(stored.Membership)
	if member, ok := m.Find(r.name); err == nil && !(ok && member.Active) {
		return fmt.Errorf("region %s: %w", r.name, ErrNotMember)
	}
	return err
}
