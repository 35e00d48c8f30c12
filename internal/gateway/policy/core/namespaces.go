package core

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/xbernetes/xbernetes/internal/gateway/policy/ledger"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/namespaces"
)

// Namespaces implements namespaces.Core.
type Namespaces struct {
	client kubernetes.Interface
	lister func(name string) (*corev1.Namespace, bool)
}

// Cached implements namespaces.Core.
func (c *Namespaces) Cached(name string) (namespaces.Namespace, bool) {
	ns, ok := c.lister(name)
	if !ok {
		return namespaces.Namespace{}, false
	}
	return NamespaceOf(ns), true
}

// Get implements namespaces.Core.
func (c *Namespaces) Get(ctx context.Context, name string) (namespaces.Namespace, error) {
	ns, err := c.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return namespaces.Namespace{}, ledger.ErrNotFound
	}
	if err != nil {
		return namespaces.Namespace{}, err
	}
	return NamespaceOf(ns), nil
}

// Finalize implements namespaces.Core.
func (c *Namespaces) Finalize(ctx context.Context, name string, ns namespaces.Namespace, finalizers []string) error {
	full, err := c.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if full.ResourceVersion != ns.Version || full.UID != types.UID(ns.UID) {
		return ledger.ErrConflict
	}
	full.Spec.Finalizers = nil
	for _, f := range finalizers {
		full.Spec.Finalizers = append(full.Spec.Finalizers, corev1.FinalizerName(f))
	}
	_, err = c.client.CoreV1().Namespaces().Finalize(ctx, full, metav1.UpdateOptions{FieldManager: fieldManager})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: %w", ledger.ErrConflict, err)
	}
	return err
}

// NamespaceOf reads from a namespace what policies need of it.
func NamespaceOf(ns *corev1.Namespace) namespaces.Namespace {
	n := namespaces.Namespace{
		UID:         string(ns.UID),
		Terminating: ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating,
		Version:     ns.ResourceVersion,
	}
	for _, f := range ns.Spec.Finalizers {
		n.Finalizers = append(n.Finalizers, string(f))
	}
	return n
}
