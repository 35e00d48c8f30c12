package agent

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
	kindAccount        = "Account"
	kindServiceCluster = "ServiceCluster"
	kindAssignment     = "ServiceClusterAssignment"
	// kindEntry is no key of a claim: its names are NAMESPACE/NAME, of this region alone.
	kindEntry = "CatalogEntry"
	// kindRegion is no key of a claim: its one name stands for the membership.
	kindRegion = "Region"
)

// errWaiting is what a name fails with whose removal is under way.
var errWaiting = errors.New("what followed from it is not gone yet")

func isWaiting(err error) bool { return errors.Is(err, errWaiting) || apierrors.IsConflict(err) }

// objectName is the name of the object of a key. Names have no dots.
func objectName(k stored.Key) string { return strings.Replace(k.Name, "/", ".", 1) }

// keyOf is the reverse of objectName.
func keyOf(kind, object string) stored.Key {
	if kind == kindAssignment {
		object = strings.Replace(object, ".", "/", 1)
	}
	return stored.Key{Kind: kind, Name: object}
}

// projection is how claims of one kind become objects.
type projection[T local.Object, L runtime.Object] struct {
	client *local.Client[T, L]
	// make returns an object with the claim's spec. If that cannot be read: an error, and an
	// object with what can be.
	make func(stored.Claim) (T, error)
	// fit gives an object the spec of another, and says whether it had another spec before.
	fit func(have, want T) bool
	// follow makes what follows from an object, and writes its status. unread says why the
	// claim's spec cannot be read; nothing that follows is changed then.
	follow func(ctx context.Context, have T, unread error) error
	// clear removes what followed from an object, and says whether all of it is gone.
	clear func(ctx context.Context, have T) (bool, error)
}

// madeFor is the operation that created the name for which an object was made.
func madeFor(o metav1.Object) string { return o.GetAnnotations()[v1alpha1.AnnotationOperation] }

// reconcile makes the object of a key as its claim says. An object that was made for an earlier
// owner of the name goes first, with all that followed from it.
func reconcile[T local.Object, L runtime.Object](ctx context.Context, api *local.API, key stored.Key, p projection[T, L]) error {
	claim, standing, err := api.Standing(ctx, key)
	if err != nil || standing == local.Undecided {
		return err
	}
	owner := ""
	if standing == local.Owned {
		owner = claim.Owner.Op.String()
	}
	have, err := p.client.Get(ctx, objectName(key), metav1.GetOptions{})
	switch none := apierrors.IsNotFound(err); {
	case err != nil && !none:
		return err
	case none && owner == "":
		return nil
	case none:
		return p.create(ctx, key, claim)
	case owner == "" || madeFor(have) != owner:
		return p.remove(ctx, have)
	case have.GetDeletionTimestamp() != nil:
		// Somebody has deleted the object of a name that stands: it is made again.
		return p.release(ctx, have)
	}
	return p.keep(ctx, have, claim)
}

func (p projection[T, L]) create(ctx context.Context, key stored.Key, claim stored.Claim) error {
	want, unread := p.make(claim)
	want.SetName(objectName(key))
	want.SetFinalizers([]string{v1alpha1.Finalizer})
	want.SetAnnotations(map[string]string{v1alpha1.AnnotationOperation: claim.Owner.Op.String()})
	have, err := p.client.Create(ctx, want, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return p.follow(ctx, have, unread)
}

// keep puts back what somebody has changed of an object.
func (p projection[T, L]) keep(ctx context.Context, have T, claim stored.Claim) error {
	want, unread := p.make(claim)
	changed := p.fit(have, want)
	if !slices.Contains(have.GetFinalizers(), v1alpha1.Finalizer) {
		have.SetFinalizers(append(have.GetFinalizers(), v1alpha1.Finalizer))
		changed = true
	}
	if changed {
		var err error
		if have, err = p.client.Update(ctx, have, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return p.follow(ctx, have, unread)
}

// remove removes an object whose name has another owner now, or none: first what followed from
// it, and then the object.
func (p projection[T, L]) remove(ctx context.Context, have T) error {
	if have.GetDeletionTimestamp() == nil {
		uid := have.GetUID()
		err := p.client.Delete(ctx, have.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err != nil {
			return fmt.Errorf("delete what has no claim: %w", err)
		}
		return errWaiting
	}
	if !slices.Contains(have.GetFinalizers(), v1alpha1.Finalizer) {
		return nil // it waits for somebody else
	}
	gone, err := p.clear(ctx, have)
	switch {
	case err != nil:
		return err
	case !gone:
		return errWaiting
	}
	return p.release(ctx, have)
}

// release lets an object go that is deleted.
func (p projection[T, L]) release(ctx context.Context, have T) error {
	kept := slices.DeleteFunc(slices.Clone(have.GetFinalizers()), func(f string) bool { return f == v1alpha1.Finalizer })
	if len(kept) == len(have.GetFinalizers()) {
		return nil
	}
	have.SetFinalizers(kept)
	_, err := p.client.Update(ctx, have, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
