package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/xbernetes/xbernetes/internal/region/protocol"
	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// Leftover is something in one region that an operation which has not ended, or was aborted, has
// still to change. Its client may be at it just now; if two questions a while apart return the same
// Leftover, nobody has gone on with it in between. Leftovers can be compared.
type Leftover struct {
	// Operation is the ID of an operation whose home is the region, and which is pending or
	// committed; empty if this is about a claim.
	Operation string
	// Kind and Name are what the operation is about, or whose claim is neither final nor gone.
	Kind Kind
	Name string

	version stored.Version // of the object that shows it
}

// Leftovers returns what is left to do in a region: operations that have their home there, and
// claims. It reads all records and claims of the region.
func (r *Region) Leftovers(ctx context.Context) ([]Leftover, error) {
	if err := r.agree(ctx); err != nil {
		return nil, err
	}
	lists := []stored.Request{stored.ListOf(r.layout.Log(r.name), stored.KindOperation), stored.ListOf(r.name.Place(), stored.KindClaim)}
	var all []Leftover
	for i, a := range r.call(ctx)(lists...) {
		if a.Outcome != stored.OK {
			return nil, noAnswer(lists[i].Place, a)
		}
		for _, o := range a.Objects {
			switch body := o.Body.(type) {
			case stored.Operation:
				if body.Home == r.name && (body.State == stored.Pending || body.State == stored.Committed) {
					all = append(all, Leftover{body.ID.String(), Kind(body.Key.Kind), body.Key.Name, o.Version})
				}
			case stored.Claim:
				if !body.Final() {
					all = append(all, Leftover{Kind: Kind(body.Key.Kind), Name: body.Key.Name, version: o.Version})
				}
			}
		}
	}
	return all, nil
}

// Settle does what is left to do. An operation is taken on to its end: it is done, or was aborted
// because the name is taken, is absent, or another operation went first. A claim is settled as the
// record of its operation says; if that is pending, the claim stays, because the operation is for its
// home to end. ErrOpen: ctx ended first.
func (r *Region) Settle(ctx context.Context, l Leftover) error {
	if l.Operation == "" {
		err := r.until(ctx, func(p *protocol.Pass) error {
			err := p.Settle(stored.Key{Kind: string(l.Kind), Name: l.Name})
			if errors.As(err, new(*protocol.Waiting)) {
				return nil
			}
			return err
		})
		return l.describe(err)
	}
	id, err := stored.ParseOpID(l.Operation)
	if err != nil {
		return invalid{err}
	}
	return l.describe(r.until(ctx, func(p *protocol.Pass) error {
		_, err := p.Resume(id)
		return err
	}))
}

func (l Leftover) describe(err error) error {
	switch {
	case err == nil:
		return nil
	case l.Operation != "":
		return fmt.Errorf("%s %s, operation %s: %w", l.Kind, l.Name, l.Operation, err)
	}
	return fmt.Errorf("%s %s: %w", l.Kind, l.Name, err)
}
