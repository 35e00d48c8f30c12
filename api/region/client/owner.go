package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/region/payload"
	"github.com/xbernetes/xbernetes/internal/region/protocol"
	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// Kind is a kind of thing whose names have one owner in all regions.
type Kind string

// The kinds.
const (
	Account        Kind = "Account"        // a DNS label
	ServiceCluster Kind = "ServiceCluster" // a DNS label
	// Assignment gives an account the use of a service cluster: SERVICECLUSTER/ACCOUNT.
	Assignment Kind = "ServiceClusterAssignment"
)

// Owned is a name that has an owner.
type Owned struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
	// Region is the home: where it was created. It stays so if that region is removed.
	Region string `json:"region"`
	// Operation is the ID of the operation that has created it.
	Operation string `json:"operation"`
	// Deleting says that a delete has reserved the name; the delete may yet be taken back.
	Deleting bool `json:"deleting,omitempty"`
	// Spec is what the name stands for. Its regions are empty: Region says it.
	Spec Spec `json:"spec,omitzero"`
	// Problem says why Spec cannot be read: a client of another version has written it.
	Problem string `json:"problem,omitempty"`
}

// Spec is what a name stands for: that of its kind is set, or none. It is in all regions once
// the name is, and never changes; it holds no secret.
type Spec struct {
	Account        *v1alpha1.AccountSpec        `json:"account,omitempty"`
	ServiceCluster *v1alpha1.ServiceClusterSpec `json:"serviceCluster,omitempty"`
}

// payloadOf is what the claims of a name carry of its spec.
func payloadOf(kind Kind, s Spec) (string, error) {
	switch {
	case s == Spec{}:
		return "", nil
	case kind == Account && s == Spec{Account: s.Account}:
		return payload.OfAccount(*s.Account)
	case kind == ServiceCluster && s == Spec{ServiceCluster: s.ServiceCluster}:
		return payload.OfServiceCluster(*s.ServiceCluster)
	}
	return "", fmt.Errorf("%s was given the spec of another kind", kind)
}

// specOf is the reverse of payloadOf.
func specOf(kind Kind, text string) (s Spec, err error) {
	if text == "" {
		return s, nil
	}
	switch kind {
	case Account:
		s.Account = &v1alpha1.AccountSpec{}
		*s.Account, err = payload.Account(text)
	case ServiceCluster:
		s.ServiceCluster = &v1alpha1.ServiceClusterSpec{}
		*s.ServiceCluster, err = payload.ServiceCluster(text)
	default:
		err = fmt.Errorf("%s has no spec", kind)
	}
	if err != nil {
		return Spec{}, err
	}
	return s, nil
}

func ownedBy(c stored.Claim) Owned {
	o := Owned{
		Kind: Kind(c.Key.Kind), Name: c.Key.Name, Region: string(c.Owner.Home), Operation: c.Owner.Op.String(),
		Deleting: c.Phase == stored.Marked || c.Phase == stored.FrozenMark,
	}
	var err error
	if o.Spec, err = specOf(o.Kind, c.Payload); err != nil {
		o.Problem = err.Error()
	}
	return o
}

// Options are those of a create or delete.
type Options struct {
	// Spec is what a name that is created stands for; a delete has none.
	Spec Spec
	// Operation is the ID that NewOperation has returned; empty: a new one. What was
	// carried out with this ID is not carried out again, and returns the same answer.
	Operation string
	// DryRun: check, as far as that can be done by reading, and write nothing.
	DryRun bool
}

// checkName refuses names that no namespace could have.
func checkName(kind Kind, name string) error {
	parts := []string{name}
	if kind == Assignment {
		if parts = strings.Split(name, "/"); len(parts) != 2 {
			return invalid{fmt.Errorf("%q is no assignment: want SERVICECLUSTER/ACCOUNT", name)}
		}
	}
	for _, part := range parts {
		if wrong := validation.IsDNS1123Label(part); len(wrong) > 0 {
			return invalid{fmt.Errorf("%q cannot be a name: %s", part, wrong[0])}
		}
	}
	return nil
}

// Create gives the name its owner in all regions, and returns once all of them have it.
func (r *Region) Create(ctx context.Context, kind Kind, name string, o Options) (Owned, error) {
	op, begun, err := r.prepare(ctx, kind, name, o)
	if err != nil {
		return Owned{}, err
	}
	if kind == Assignment && !begun {
		cluster, account, _ := strings.Cut(name, "/")
		if _, err := r.Get(ctx, ServiceCluster, cluster); err != nil {
			return Owned{}, err
		}
		if _, err := r.Get(ctx, Account, account); err != nil {
			return Owned{}, err
		}
	}
	created := Owned{Kind: kind, Name: name, Region: string(r.name)}
	if created.Spec, err = specOf(kind, op.Payload); err != nil {
		return Owned{}, err
	}
	if o.DryRun {
		if there, err := r.Get(ctx, kind, name); !errors.Is(err, ErrAbsent) {
			return there, r.describe(ctx, stored.Operation{Key: op.Key, Reason: stored.Taken}, err)
		}
		return created, nil
	}
	if _, err := r.carryOut(ctx, op, (*protocol.Pass).Create); err != nil {
		return Owned{}, err
	}
	created.Operation = op.ID.String()
	return created, nil
}

// Delete takes the name from its owner in all regions, and returns what it was once no region
// has it. An account or service cluster with assignments is not deleted: ErrInUse.
func (r *Region) Delete(ctx context.Context, kind Kind, name string, o Options) (Owned, error) {
	o.Spec = Spec{}
	op, begun, err := r.prepare(ctx, kind, name, o)
	if err != nil {
		return Owned{}, err
	}
	if kind != Assignment && !begun {
		if err := r.unused(ctx, kind, name); err != nil {
			return Owned{}, err
		}
	}
	if o.DryRun {
		return r.Get(ctx, kind, name)
	}
	end, err := r.carryOut(ctx, op, (*protocol.Pass).Delete)
	if err != nil {
		return Owned{}, err
	}
	return Owned{Kind: kind, Name: name, Region: string(end.TargetHome), Operation: end.Target.String()}, nil
}

// prepare checks what can be checked before there is an operation. begun says whether the
// operation that is asked for has a record: what must be so before it is carried out was found
// to be so then; it may have been carried out since, and other names made.
func (r *Region) prepare(ctx context.Context, kind Kind, name string, o Options) (op stored.Operation, begun bool, err error) {
	op.Key = stored.Key{Kind: string(kind), Name: name}
	if err := checkName(kind, name); err != nil {
		return op, false, err
	}
	if op.Payload, err = payloadOf(kind, o.Spec); err != nil {
		return op, false, invalid{fmt.Errorf("%s %s: %w", kind, name, err)}
	}
	if err := r.agree(ctx); err != nil || o.DryRun {
		return op, false, err
	}
	again := o.Operation != ""
	if !again {
		if o.Operation, err = r.NewOperation(ctx); err != nil {
			return op, false, err
		}
	}
	if op.ID, err = stored.ParseOpID(o.Operation); err != nil {
		return op, false, invalid{err}
	}
	r.progress(fmt.Sprintf("operation %s: %s %s, from region %s", o.Operation, kind, name, r.name))
	if !again {
		return op, false, nil
	}
	found, err := r.read(ctx, stored.ReadOf(r.layout.Log(r.name), stored.KindOperation, op.ID.String()))
	return op, found != nil, err
}

// unused returns an error that names the first assignment of an account or service cluster.
func (r *Region) unused(ctx context.Context, kind Kind, name string) error {
	all, err := r.List(ctx, Assignment)
	if err != nil {
		return err
	}
	for _, a := range all {
		cluster, account, _ := strings.Cut(a.Name, "/")
		if kind == Account && account == name || kind == ServiceCluster && cluster == name {
			return fmt.Errorf("%s %s: %w by the assignment %s", kind, name, ErrInUse, a.Name)
		}
	}
	return nil
}

// carryOut takes an operation on to its end, and returns its record if it is Done.
func (r *Region) carryOut(ctx context.Context, op stored.Operation, pass func(*protocol.Pass, stored.Operation) (stored.Operation, error)) (stored.Operation, error) {
	var end stored.Operation
	var refusal error // why a region refused a reservation, in an earlier pass than the last
	err := r.until(ctx, func(p *protocol.Pass) (err error) {
		end, err = pass(p, op)
		if refused := (*protocol.Refusal)(nil); errors.As(err, &refused) {
			refusal = err
		}
		return err
	})
	switch {
	case errors.Is(err, ErrOpen), errors.Is(err, ErrRemoved):
		return end, fmt.Errorf("%s %s, operation %s: %w", op.Key.Kind, op.Key.Name, op.ID, err)
	case err != nil || end.State == stored.Done:
		return end, err
	}
	return end, r.describe(ctx, end, refusal)
}

// describe says why an operation was aborted.
func (r *Region) describe(ctx context.Context, end stored.Operation, refusal error) error {
	var why error
	switch end.Reason {
	case stored.Taken:
		why = ErrTaken
		if there, err := r.Get(ctx, Kind(end.Key.Kind), end.Key.Name); err == nil {
			why = fmt.Errorf("%w: its home is region %s", ErrTaken, there.Region)
		}
	case stored.Absent:
		why = ErrAbsent
	case stored.NotActive, stored.Removed:
		why = fmt.Errorf("region %s: %w", r.name, ErrNotMember)
	case stored.Contended:
		why = ErrContended
	case stored.Expired:
		why = fmt.Errorf("operation %s: %w", end.ID, ErrExpired)
	case stored.Forbidden:
		why = errors.New("a region refused it")
	}
	if refusal != nil {
		why = refusal
	}
	return fmt.Errorf("%s %s: %w", end.Key.Kind, end.Key.Name, why)
}

// Get returns the owner of a name, as this region knows it: of all that was acknowledged.
func (r *Region) Get(ctx context.Context, kind Kind, name string) (Owned, error) {
	key := stored.Key{Kind: string(kind), Name: name}
	found, err := r.read(ctx, stored.ReadOf(r.name.Place(), stored.KindClaim, key.ClaimName()))
	if err != nil {
		return Owned{}, err
	}
	if c, _ := found.(stored.Claim); c.Owned() && c.Key == key {
		return ownedBy(c), nil
	}
	return Owned{}, fmt.Errorf("%s %s: %w", kind, name, ErrAbsent)
}

// List returns all names of a kind, of all regions, sorted. This region alone is asked: each
// active one has the claims of all that was acknowledged.
func (r *Region) List(ctx context.Context, kind Kind) ([]Owned, error) {
	a := r.call(ctx)(stored.ListOf(r.name.Place(), stored.KindClaim))[0]
	if a.Outcome != stored.OK {
		return nil, noAnswer(r.name.Place(), a)
	}
	all := []Owned{}
	for _, o := range a.Objects {
		if c, _ := o.Body.(stored.Claim); c.Owned() && c.Key.Kind == string(kind) {
			all = append(all, ownedBy(c))
		}
	}
	slices.SortFunc(all, func(a, b Owned) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}
