package client

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// Status is how the regions stand.
type Status struct {
	Members []Member `json:"members"`
	// Unfinished are operations that have not ended, the oldest first. One that has begun just
	// now may well be under way. Those whose records are in a region that does not answer are not
	// among them; the region's Problem says so.
	Unfinished []Unfinished `json:"unfinished"`
}

// Unfinished is an operation that has not ended.
type Unfinished struct {
	Operation string `json:"operation"`
	Verb      string `json:"verb"` // Create or Delete
	Kind      Kind   `json:"kind"`
	Name      string `json:"name"`
	// State is Pending, so that nothing is decided, or Committed, so that it is decided, and not
	// yet carried out everywhere.
	State string `json:"state"`
	// Region is its home.
	Region string `json:"region"`
	// Since is when it began, by the clock of the place that has its record.
	Since time.Time `json:"since"`
	// Next says who can end it.
	Next string `json:"next"`
}

// Status asks the register and all places with records. If the register does not answer, it
// returns an error.
func (r *Regions) Status(ctx context.Context) (Status, error) {
	members, err := r.Members(ctx)
	if err != nil {
		return Status{}, err
	}
	s := Status{members, []Unfinished{}}
	var lists []stored.Request
	away := ""
	if r.layout.Central {
		lists = append(lists, stored.ListOf(stored.Central, stored.KindOperation))
	}
	for _, m := range members {
		switch {
		case m.State == "NotMember":
		case m.Problem != "":
			away = m.Region
		case !r.layout.Central:
			lists = append(lists, stored.ListOf(stored.Place(m.Region), stored.KindOperation))
		}
	}
	for i, a := range r.places.Call(ctx)(lists...) {
		if a.Outcome != stored.OK {
			return Status{}, noAnswer(lists[i].Place, a)
		}
		for _, o := range a.Objects {
			if op, _ := o.Body.(stored.Operation); op.State == stored.Pending || op.State == stored.Committed {
				s.Unfinished = append(s.Unfinished, unfinished(op, o.Created, away))
			}
		}
	}
	slices.SortFunc(s.Unfinished, func(a, b Unfinished) int { return a.Since.Compare(b.Since) })
	return s, nil
}

// unfinished describes an operation; away is a member that does not answer, or empty.
func unfinished(op stored.Operation, since time.Time, away string) Unfinished {
	u := Unfinished{
		Operation: op.ID.String(), Verb: string(op.Verb), Kind: Kind(op.Key.Kind), Name: op.Key.Name,
		State: string(op.State), Region: string(op.Home), Since: since,
	}
	switch {
	case away != "":
		u.Next = fmt.Sprintf("region %s must answer, or be removed; then anybody who asks for the name", away)
	case op.State == stored.Pending:
		u.Next = "whoever asks again with the operation; anybody who wants the name aborts it"
	default:
		u.Next = "whoever asks again with the operation, or for the name"
	}
	return u
}
