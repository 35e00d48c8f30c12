package kube

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// maxMembers is how many regions there can be, as the definitions say.
const maxMembers = 256

// resources are where the kinds are served.
var resources = map[stored.Kind]string{
	stored.KindClaim:      "claims",
	stored.KindOperation:  "operations",
	stored.KindMembership: "memberships",
}

// objects returns what the answer to a request is read into, and what is sent.
func objects(r stored.Request) (into, body runtime.Object, err error) {
	switch r.Kind {
	case stored.KindClaim:
		into = &v1alpha1.Claim{}
	case stored.KindOperation:
		into = &v1alpha1.Operation{}
	case stored.KindMembership:
		into = &v1alpha1.Membership{}
	default:
		return nil, nil, fmt.Errorf("kind %q %w", r.Kind, errRefused)
	}
	if r.Body != nil {
		body = encode(r.Body, r.Version)
	}
	return into, body, nil
}

// listObject is a list of one kind.
type listObject interface {
	runtime.Object
	GetContinue() string
}

// listOf returns an empty list of a kind, and what returns its items once it is read.
func listOf(k stored.Kind) (into listObject, items func() []runtime.Object) {
	switch k {
	case stored.KindClaim:
		l := &v1alpha1.ClaimList{}
		return l, func() (all []runtime.Object) {
			for i := range l.Items {
				all = append(all, &l.Items[i])
			}
			return all
		}
	case stored.KindOperation:
		l := &v1alpha1.OperationList{}
		return l, func() (all []runtime.Object) {
			for i := range l.Items {
				all = append(all, &l.Items[i])
			}
			return all
		}
	default:
		l := &v1alpha1.MembershipList{}
		return l, func() (all []runtime.Object) {
			for i := range l.Items {
				all = append(all, &l.Items[i])
			}
			return all
		}
	}
}

// encode returns the object that holds a body.
func encode(b stored.Body, version stored.Version) runtime.Object {
	meta := metav1.ObjectMeta{Name: b.Name(), ResourceVersion: string(version)}
	switch b := b.(type) {
	case stored.Claim:
		c := &v1alpha1.Claim{ObjectMeta: meta, Spec: v1alpha1.ClaimSpec{
			Key: v1alpha1.Key(b.Key), Phase: string(b.Phase), Owner: encodeStake(b.Owner), WasReal: b.WasReal, Payload: b.Payload,
		}}
		if b.Deleter != (stored.Stake{}) {
			by := encodeStake(b.Deleter)
			c.Spec.Deleter = &by
		}
		return c
	case stored.Operation:
		o := &v1alpha1.Operation{ObjectMeta: meta, Spec: v1alpha1.OperationSpec{
			Verb: string(b.Verb), Key: v1alpha1.Key(b.Key), Home: string(b.Home), Payload: b.Payload,
			TargetHome: string(b.TargetHome), State: string(b.State), Reason: string(b.Reason),
			Attempt: int64(b.Attempt), Epoch: int64(b.Epoch), //nolint:gosec // counters from 1
		}}
		if b.Target != (stored.OpID{}) {
			o.Spec.Target = b.Target.String()
		}
		for _, r := range b.Members {
			o.Spec.Members = append(o.Spec.Members, string(r))
		}
		return o
	case stored.Membership:
		m := &v1alpha1.Membership{ObjectMeta: meta, Spec: v1alpha1.MembershipSpec{
			Epoch: int64(b.Epoch), Horizon: int64(b.Horizon), //nolint:gosec // counters from 1
		}}
		for _, x := range b.Members {
			m.Spec.Members = append(m.Spec.Members,
				v1alpha1.Member{Region: string(x.Region), Active: x.Active, Since: int64(x.Since)}) //nolint:gosec // a counter from 1
		}
		return m
	}
	panic(fmt.Sprintf("kube: no object holds a %T", b))
}

func encodeStake(s stored.Stake) v1alpha1.Stake {
	return v1alpha1.Stake{Operation: s.Op.String(), Home: string(s.Home),
		Attempt: int64(s.Attempt), Epoch: int64(s.Epoch)} //nolint:gosec // counters from 1
}

// decode reads an object as it was stored. It refuses what no client of the protocol of
// this version writes, rather than act on half of it.
func decode(at stored.Place, object runtime.Object) (stored.Object, error) {
	var body stored.Body
	var meta metav1.ObjectMeta
	var err error
	switch o := object.(type) {
	case *v1alpha1.Claim:
		meta = o.ObjectMeta
		body, err = decodeClaim(o.Spec)
	case *v1alpha1.Operation:
		meta = o.ObjectMeta
		body, err = decodeOperation(o.Name, o.Spec)
	case *v1alpha1.Membership:
		meta = o.ObjectMeta
		body, err = decodeMembership(o.Spec)
	}
	if err == nil && body.Name() != meta.Name {
		err = fmt.Errorf("what it holds belongs into %s", body.Name())
	}
	if err == nil && meta.ResourceVersion == "" {
		err = errors.New("it has no resourceVersion")
	}
	if err != nil {
		return stored.Object{}, fmt.Errorf("%T %s in %s cannot be used: %w", object, meta.Name, name(at), err)
	}
	return stored.Object{Place: at, Version: stored.Version(meta.ResourceVersion), Body: body, Created: meta.CreationTimestamp.Time}, nil
}

func decodeClaim(s v1alpha1.ClaimSpec) (stored.Claim, error) {
	c := stored.Claim{Key: stored.Key(s.Key), Phase: stored.Phase(s.Phase), WasReal: s.WasReal, Payload: s.Payload}
	var err error
	if c.Owner, err = decodeStake(s.Owner); err != nil {
		return c, err
	}
	if s.Deleter != nil {
		if c.Deleter, err = decodeStake(*s.Deleter); err != nil {
			return c, err
		}
	}
	marked := false
	switch c.Phase {
	case stored.Marked, stored.FrozenMark, stored.Tomb:
		marked = true
	case stored.Intent, stored.Held, stored.Real, stored.FrozenIntent, stored.Copy:
	default:
		return c, fmt.Errorf("phase %q is not known", s.Phase)
	}
	if marked != (s.Deleter != nil) {
		return c, fmt.Errorf("phase %s and a deleter that is %v", c.Phase, s.Deleter)
	}
	return c, nil
}

func decodeStake(s v1alpha1.Stake) (stored.Stake, error) {
	id, err := stored.ParseOpID(s.Operation)
	if err == nil && (s.Attempt < 0 || s.Epoch < 0) {
		err = fmt.Errorf("attempt %d and epoch %d must not be negative", s.Attempt, s.Epoch)
	}
	return stored.Stake{Op: id, Home: stored.Region(s.Home),
		Attempt: stored.Attempt(s.Attempt), Epoch: stored.Epoch(s.Epoch)}, err //nolint:gosec // not negative
}

func decodeOperation(name string, s v1alpha1.OperationSpec) (stored.Operation, error) {
	o := stored.Operation{
		Verb: stored.Verb(s.Verb), Key: stored.Key(s.Key), Home: stored.Region(s.Home), Payload: s.Payload,
		TargetHome: stored.Region(s.TargetHome), State: stored.State(s.State), Reason: stored.Reason(s.Reason),
		Attempt: stored.Attempt(s.Attempt), Epoch: stored.Epoch(s.Epoch), //nolint:gosec // checked below
	}
	var err error
	if o.ID, err = stored.ParseOpID(name); err != nil {
		return o, err
	}
	if s.Target != "" {
		if o.Target, err = stored.ParseOpID(s.Target); err != nil {
			return o, err
		}
	}
	for _, r := range s.Members {
		o.Members = append(o.Members, stored.Region(r))
	}
	switch {
	case len(s.Members) > maxMembers:
		return o, fmt.Errorf("%d members are more than %d", len(s.Members), maxMembers)
	case s.Attempt < 1 || s.Epoch < 0:
		return o, fmt.Errorf("attempt %d and epoch %d cannot be", s.Attempt, s.Epoch)
	case o.Verb != stored.Create && o.Verb != stored.Delete:
		return o, fmt.Errorf("verb %q is not known", s.Verb)
	case (o.Verb == stored.Delete) != (s.Target != ""):
		return o, fmt.Errorf("verb %s with the target %q", s.Verb, s.Target)
	}
	switch o.State {
	case stored.Pending, stored.Committed, stored.Aborted, stored.Done:
		return o, nil
	}
	return o, fmt.Errorf("state %q is not known", s.State)
}

func decodeMembership(s v1alpha1.MembershipSpec) (stored.Membership, error) {
	m := stored.Membership{Epoch: stored.Epoch(s.Epoch), Horizon: stored.Window(s.Horizon)} //nolint:gosec // checked below
	if s.Epoch < 1 || s.Horizon < 0 {
		return m, fmt.Errorf("epoch %d and horizon %d cannot be", s.Epoch, s.Horizon)
	}
	if len(s.Members) > maxMembers {
		return m, fmt.Errorf("%d members are more than %d", len(s.Members), maxMembers)
	}
	for _, x := range s.Members {
		if _, twice := m.Find(stored.Region(x.Region)); twice || x.Region == "" || x.Since < 1 || x.Since > s.Epoch {
			return m, fmt.Errorf("member %q since %d cannot be", x.Region, x.Since)
		}
		m = m.With(stored.Member{Region: stored.Region(x.Region), Active: x.Active, Since: stored.Epoch(x.Since)}) //nolint:gosec // checked
	}
	return m, nil
}
