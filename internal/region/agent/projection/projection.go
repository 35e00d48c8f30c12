// Package projection makes objects of one region from the claims there, one for each name of a kind,
// and removes them once nobody owns the name. It never makes what follows from an object.
package projection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/region/local"
	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// The kinds of keys that something follows from.
const (
	KindAccount        = "Account"
	KindServiceCluster = "ServiceCluster"
	KindAssignment     = "ServiceClusterAssignment"
	// KindEntry is no key of a claim: its names are NAMESPACE/NAME, of this region alone.
	KindEntry = "CatalogEntry"
	// KindRegion is no key of a claim: its one name stands for the membership.
	KindRegion = "Region"
)

// ErrWaiting is what a name fails with whose removal is under way.
var ErrWaiting = errors.New("what followed from it is not gone yet")

// IsWaiting says whether an error is no failure: something is being removed, or somebody else wrote
// first.
func IsWaiting(err error) bool { return errors.Is(err, ErrWaiting) || apierrors.IsConflict(err) }

// ObjectName is the name of the object of a key. Names have no dots.
func ObjectName(k stored.Key) string { return strings.Replace(k.Name, "/", ".", 1) }

// KeyOf is the reverse of ObjectName.
func KeyOf(kind, object string) stored.Key {
	if kind == KindAssignment {
		object = strings.Replace(object, ".", "/", 1)
	}
	return stored.Key{Kind: kind, Name: object}
}

// Projection is how claims of one kind become objects.
type Projection[T local.Object, L runtime.Object] struct {
	Client *local.Client[T, L]
	// Make returns an object with the claim's spec. If that cannot be read: an error, and an
	// object with what can be.
	Make func(stored.Claim) (T, error)
	// Fit gives an object the spec of another, and says whether it had another spec before.
	Fit func(have, want T) bool
	// Follow makes what follows from an object, and writes its status. unread says why the
	// claim's spec cannot be read; nothing that follows is changed then.
	Follow func(ctx context.Context, have T, unread error) error
	// Clear removes what followed from an object, and says whether all of it is gone.
	Clear func(ctx context.Context, have T) (bool, error)
}

// MadeFor is the operation that created the name for which an object was made.
func MadeFor(o metav1.Object) string { return o.GetAnnotations()[v1alpha1.AnnotationOperation] }

// Reconcile makes the object of a key as its claim says. An object that was made for an earlier
// owner of the name goes first, with all that followed from it.
func Reconcile[T local.Object, L runtime.Object](ctx context.Context, api *local.API, key stored.Key, p Projection[T, L]) error {
	claim, standing, err := api.Standing(ctx, key)
	if err != nil || standing == local.Undecided {
		return err
	}
	owner := ""
	if standing == local.Owned {
		owner = claim.Owner.Op.String()
	}
	have, err := p.Client.Get(ctx, ObjectName(key), metav1.GetOptions{})
	switch none := apierrors.IsNotFound(err); {
	case err != nil && !none:
		return err
	case none && owner == "":
		return nil
	case none:
		return p.create(ctx, key, claim)
	case owner == "" || MadeFor(have) != owner:
		return p.remove(ctx, have)
	case have.GetDeletionTimestamp() != nil:
		// Somebody has deleted the object of a name that stands: it is made again.
		return Release(ctx, p.Client, have)
	}
	return p.keep(ctx, have, claim)
}

func (p Projection[T, L]) create(ctx context.Context, key stored.Key, claim stored.Claim) error {
	want, unread := p.Make(claim)
	want.SetName(ObjectName(key))
	want.SetFinalizers([]string{v1alpha1.Finalizer})
	want.SetAnnotations(map[string]string{v1alpha1.AnnotationOperation: claim.Owner.Op.String()})
	have, err := p.Client.Create(ctx, want, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return p.Follow(ctx, have, unread)
}

// keep puts back what somebody has changed of an object.
func (p Projection[T, L]) keep(ctx context.Context, have T, claim stored.Claim) error {
	want, unread := p.Make(claim)
	changed := p.Fit(have, want)
	if !slices.Contains(have.GetFinalizers(), v1alpha1.Finalizer) {
		have.SetFinalizers(append(have.GetFinalizers(), v1alpha1.Finalizer))
		changed = true
	}
	if changed {
		var err error
		if have, err = p.Client.Update(ctx, have, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return p.Follow(ctx, have, unread)
}

// remove removes an object whose name has another owner now, or none: first what followed from
// it, and then the object.
func (p Projection[T, L]) remove(ctx context.Context, have T) error {
	if have.GetDeletionTimestamp() == nil {
		uid := have.GetUID()
		err := p.Client.Delete(ctx, have.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err != nil {
			return fmt.Errorf("delete what has no claim: %w", err)
		}
		return ErrWaiting
	}
	if !slices.Contains(have.GetFinalizers(), v1alpha1.Finalizer) {
		return nil // it waits for somebody else
	}
	gone, err := p.Clear(ctx, have)
	switch {
	case err != nil:
		return err
	case !gone:
		return ErrWaiting
	}
	return Release(ctx, p.Client, have)
}

// Release lets an object go that is deleted.
func Release[T local.Object, L runtime.Object](ctx context.Context, client *local.Client[T, L], have T) error {
	kept := slices.DeleteFunc(slices.Clone(have.GetFinalizers()), func(f string) bool { return f == v1alpha1.Finalizer })
	if len(kept) == len(have.GetFinalizers()) {
		return nil
	}
	have.SetFinalizers(kept)
	_, err := client.Update(ctx, have, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
