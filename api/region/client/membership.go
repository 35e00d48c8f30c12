package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/xbernetes/xbernetes/internal/region/definitions"
	"github.com/xbernetes/xbernetes/internal/region/protocol"
	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// Member is a region as it stands.
type Member struct {
	Region string `json:"region"`
	// State is Active, Joining, or NotMember.
	State string `json:"state"`
	// Since is the epoch in which it joined.
	Since uint64 `json:"since,omitempty"`
	// Problem says why the region cannot be used; empty if it can.
	Problem string `json:"problem,omitempty"`
}

// founding is the key whose claim says with which layout regions were founded, and by a
// random part which other regions belong to them. Each member has it, as it has all claims.
func founding() stored.Key { return stored.Key{Kind: "Founding", Name: "regions"} }

func layoutName(l protocol.Layout) string {
	if l.Central {
		return "central"
	}
	return "register " + string(l.Register)
}

// founded returns what a region was founded with; empty if it never was a member.
func (r *Regions) founded(ctx context.Context, region stored.Region) (string, error) {
	found, err := r.read(ctx, stored.ReadOf(region.Place(), stored.KindClaim, founding().ClaimName()))
	c, _ := found.(stored.Claim)
	if !c.Owned() {
		return "", err
	}
	return c.Payload, err
}

// agree returns nil if the region was founded with this client's layout. Clients that did
// not agree on where the membership is changed could give a name two owners.
func (r *Region) agree(ctx context.Context) error {
	with, err := r.founded(ctx, r.name)
	if err != nil {
		return err
	}
	layout, _, _ := strings.Cut(with, ";")
	switch {
	case with == "":
		return fmt.Errorf("region %s: %w", r.name, ErrNotMember)
	case layout != layoutName(r.layout):
		return fmt.Errorf("region %s: %w: it was founded with the %s", r.name, ErrLayout, layout)
	}
	return nil
}

// membership reads the register; zero if the regions are not founded yet.
func (r *Regions) membership(ctx context.Context) (stored.Membership, error) {
	found, err := r.read(ctx, stored.ReadOf(r.layout.Register, stored.KindMembership, stored.MembershipName))
	m, _ := found.(stored.Membership)
	return m, err
}

// Join makes a region an active member, with all claims of the others. The definitions of
// what is stored are created in it if they are not there. The first region to join is the
// register, or with a central store any. Whoever calls it for a region whose join was
// interrupted goes on from there.
func (r *Regions) Join(ctx context.Context, region string) error {
	if _, err := r.In(region); err != nil {
		return err
	}
	install := []string{region}
	if r.config.Central != nil {
		install = append(install, string(stored.Central))
	}
	for _, place := range install {
		r.progress("definitions in " + placeName(stored.Place(place)))
		config := r.config.Central
		if place != string(stored.Central) {
			config = r.config.Regions[place]
		}
		if err := definitions.Install(ctx, config); err != nil {
			return fmt.Errorf("create the definitions in %s: %w", placeName(stored.Place(place)), err)
		}
	}
	member, err := r.found(ctx, region)
	if err != nil {
		return err
	}
	if err := r.sameFounding(ctx, member, stored.Region(region)); err != nil {
		return err
	}
	r.progress("region " + region + " joins")
	return member.until(ctx, func(p *protocol.Pass) error {
		_, err := p.Join(stored.Region(region))
		return err
	})
}

// found makes the region the first member if there is none, and returns an active member.
func (r *Regions) found(ctx context.Context, region string) (*Region, error) {
	m, err := r.membership(ctx)
	if err == nil && m.Epoch == 0 {
		if !r.layout.Central && region != r.config.Register {
			return nil, fmt.Errorf("region %s has the register, and must join first", r.config.Register)
		}
		here := &Region{r, stored.Region(region)}
		if with, err := r.founded(ctx, here.name); err != nil || with != "" {
			return nil, errors.Join(err, fmt.Errorf("region %s: %w", region, ErrLayout))
		}
		r.progress("region " + region + " is the first")
		return here, here.until(ctx, func(p *protocol.Pass) error {
			_, err := p.Found(here.name)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(m.Members, func(x stored.Member) bool { return x.Active && r.config.Regions[string(x.Region)] != nil })
	if i < 0 {
		return nil, errors.New("no active member is among the regions that are configured")
	}
	return &Region{r, m.Members[i].Region}, nil
}

// sameFounding has the members note what they were founded with, if that is not noted yet, and
// refuses a region that belongs to others.
func (r *Regions) sameFounding(ctx context.Context, member *Region, joins stored.Region) error {
	ours, err := r.founded(ctx, member.name)
	if err != nil {
		return err
	}
	if ours == "" {
		id, err := member.NewOperation(ctx)
		if err != nil {
			return err
		}
		op := stored.Operation{Key: founding(), Payload: layoutName(r.layout) + ";" + strings.ToLower(rand.Text())}
		if op.ID, err = stored.ParseOpID(id); err != nil {
			return err
		}
		if _, err := member.carryOut(ctx, op, (*protocol.Pass).Create); err != nil && !errors.Is(err, ErrTaken) {
			return err
		}
		if ours, err = r.founded(ctx, member.name); err != nil {
			return err
		}
	}
	if err := member.agree(ctx); err != nil {
		return err
	}
	theirs, err := r.founded(ctx, joins)
	if err == nil && theirs != "" && theirs != ours {
		return fmt.Errorf("region %s: %w: it was founded with others", joins, ErrLayout)
	}
	return err
}

// Remove makes a region a member no more. If gone is set, the region need not answer, and
// what its clients were told of operations that were not acknowledged does not bind the
// others; otherwise a region that does not answer is not removed: ErrAway. Whoever calls it
// for a region whose removal was interrupted goes on from there.
func (r *Regions) Remove(ctx context.Context, region string, gone bool) error {
	if region == r.config.Register {
		return fmt.Errorf("region %s has the register, and cannot be removed", region)
	}
	m, err := r.membership(ctx)
	if err != nil {
		return err
	}
	if !gone {
		if _, err := r.read(ctx, stored.ReadOf(stored.Place(region), stored.KindMembership, stored.MembershipName)); err != nil {
			return err
		}
	}
	here, err := r.other(ctx, m, region)
	if err != nil {
		return err
	}
	if here == nil {
		return fmt.Errorf("region %s is the last: %w", region, ErrInUse)
	}
	r.progress("region " + region + " is removed")
	return here.until(ctx, func(p *protocol.Pass) error {
		_, err := p.Remove(stored.Region(region))
		return err
	})
}

// other is an active member, but for one, that is configured and agrees with this client's layout;
// nil if there is none.
func (r *Regions) other(ctx context.Context, m stored.Membership, not string) (*Region, error) {
	for _, x := range m.Members {
		if x.Active && string(x.Region) != not && r.config.Regions[string(x.Region)] != nil {
			here := &Region{r, x.Region}
			return here, here.agree(ctx)
		}
	}
	return nil, nil
}

// Collect removes the records of all operations that were made before. Operations that are under
// way meanwhile, and not yet decided, are aborted: their clients are told so, and ask again with
// a new operation ID. Those that are decided are finished first. Whoever asks again for an
// operation that was collected is told that nobody knows its outcome, and nothing is carried
// out. All members must answer.
func (r *Regions) Collect(ctx context.Context) error {
	m, err := r.membership(ctx)
	if err != nil {
		return err
	}
	here, err := r.other(ctx, m, "")
	if err != nil {
		return err
	}
	if here == nil {
		return errors.New("no active member is among the regions that are configured")
	}
	before := m.Horizon + 1
	r.progress(fmt.Sprintf("records of operations before window %d are collected", before))
	return here.until(ctx, func(p *protocol.Pass) error { return p.Collect(before) })
}

// Members returns how all members and all configured regions stand, sorted by name. If the
// register does not answer, it returns an error.
func (r *Regions) Members(ctx context.Context) ([]Member, error) {
	m, err := r.membership(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]Member{}
	for name := range r.config.Regions {
		all[name] = Member{Region: name, State: "NotMember"}
	}
	for _, x := range m.Members {
		state := "Joining"
		if x.Active {
			state = "Active"
		}
		all[string(x.Region)] = Member{Region: string(x.Region), State: state, Since: uint64(x.Since)}
	}
	members := []Member{}
	for name, x := range all {
		switch _, err := r.read(ctx, stored.ReadOf(stored.Place(name), stored.KindMembership, stored.MembershipName)); {
		case r.config.Regions[name] == nil:
			x.Problem = "it is not configured here"
		case err != nil:
			x.Problem = err.Error()
		}
		members = append(members, x)
	}
	slices.SortFunc(members, func(a, b Member) int { return strings.Compare(a.Region, b.Region) })
	return members, nil
}
