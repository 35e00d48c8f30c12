// Package namespace makes and removes the namespaces that follow from names, in any Kubernetes
// API. It never changes or removes a namespace that it did not make for the same name.
package namespace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
)

// Wanted is a namespace, and what it is for.
type Wanted struct {
	Name string
	// Account is the account that it is for.
	Account string
	// Operation is the ID of the operation that created the name that the namespace follows
	// from. No two names have the same, so that a namespace with it was made for this name.
	Operation string
}

// Derived is the name of a namespace on a cluster that the regions do not own: the account's,
// with a hash of the operation, so that it is the same whoever makes it and is not taken.
func Derived(account, operation string) string {
	const (
		hash    = 10
		longest = 63 - 1 - hash
	)
	sum := sha256.Sum256([]byte(operation))
	return account[:min(len(account), longest)] + "-" + hex.EncodeToString(sum[:hash/2])
}

// State is how a namespace stands.
type State string

// The states.
const (
	There       State = "There"
	Taken       State = "Taken"       // there is another of this name, made by somebody else
	Terminating State = "Terminating" // it is being removed, and can then be made again
)

// Ensure makes the namespace if there is none of its name.
func Ensure(ctx context.Context, client v1.NamespaceInterface, w Wanted) (State, error) {
	have, err := client.Get(ctx, w.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		have, err = client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name:        w.Name,
			Labels:      map[string]string{v1alpha1.LabelAccount: w.Account},
			Annotations: map[string]string{v1alpha1.AnnotationOperation: w.Operation},
		}}, metav1.CreateOptions{})
	}
	switch {
	case err != nil:
		return "", err
	case !w.made(have):
		return Taken, nil
	case have.DeletionTimestamp != nil:
		return Terminating, nil
	}
	return There, nil
}

// Remove removes the namespace if it was made for this name, and says whether it is gone.
func Remove(ctx context.Context, client v1.NamespaceInterface, w Wanted) (gone bool, err error) {
	have, err := client.Get(ctx, w.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, err
	case !w.made(have):
		return true, nil
	case have.DeletionTimestamp != nil:
		return false, nil
	}
	err = client.Delete(ctx, w.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(have.UID))})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return false, err
}

// made says whether the namespace is the one that is wanted.
func (w Wanted) made(have *corev1.Namespace) bool {
	return have.Name == w.Name && have.Labels[v1alpha1.LabelAccount] == w.Account && have.Annotations[v1alpha1.AnnotationOperation] == w.Operation
}
