package policy

import (
	"context"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

const (
	// ledgerLabel is on the ConfigMaps that hold ledgers.
	ledgerLabel = "aggregation.xbernetes.io/ledger"
	ledgerKey   = "ledger"
)

// configMaps keeps ledgers in ConfigMaps of one namespace of the core server,
// which only the gateways may write. The API server's optimistic concurrency is
// the compare-and-swap.
type configMaps struct {
	client    kubernetes.Interface
	namespace string

	mu   sync.Mutex
	made bool // the namespace was there when last needed
}

func ledgerName(p place) string { return p.Name + "." + p.UID }

// placeOf is the inverse of ledgerName: a namespace's name has no dot.
func placeOf(name string) (place, bool) {
	ns, uid, ok := strings.Cut(name, ".")
	return place{ns, uid}, ok && ns != "" && uid != ""
}

func (s *configMaps) read(ctx context.Context, p place) (text, version string, err error) {
	cm, err := s.client.CoreV1().ConfigMaps(s.namespace).Get(ctx, ledgerName(p), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", "", errNotFound
	}
	if err != nil {
		return "", "", err
	}
	return cm.Data[ledgerKey], cm.ResourceVersion, nil
}

func (s *configMaps) write(ctx context.Context, p place, text, version string) (string, error) {
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name:            ledgerName(p),
			Namespace:       s.namespace,
			Labels:          map[string]string{ledgerLabel: "true"},
			ResourceVersion: version,
		},
		Data: map[string]string{ledgerKey: text},
	}
	client := s.client.CoreV1().ConfigMaps(s.namespace)
	var err error
	if version == "" {
		if err := s.room(ctx); err != nil {
			return "", err
		}
		cm, err = client.Create(ctx, cm, metav1.CreateOptions{FieldManager: fieldManager})
		if apierrors.IsNotFound(err) {
			s.mu.Lock()
			s.made = false
			s.mu.Unlock()
		}
	} else {
		cm, err = client.Update(ctx, cm, metav1.UpdateOptions{FieldManager: fieldManager})
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		return "", fmt.Errorf("%w: %w", errConflict, err)
	case err != nil:
		return "", err
	}
	return cm.ResourceVersion, nil
}

func (s *configMaps) remove(ctx context.Context, p place, version string) error {
	err := s.client.CoreV1().ConfigMaps(s.namespace).Delete(ctx, ledgerName(p), metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{ResourceVersion: &version},
	})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: %w", errConflict, err)
	}
	return err
}

// room makes the namespace that ledgers are in, if it is not there.
func (s *configMaps) room(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made {
		return nil
	}
	_, err := s.client.CoreV1().Namespaces().Get(ctx, s.namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
		_, err = s.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{FieldManager: fieldManager})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make namespace %s for the ledgers: %w", s.namespace, err)
	}
	s.made = true
	return nil
}

// fieldManager is who the gateway says it is when it writes.
const fieldManager = "xb-gateway"

// coreNamespaces are those of the core server.
type coreNamespaces struct {
	client kubernetes.Interface
	lister func(name string) (*corev1.Namespace, bool)
}

func (c *coreNamespaces) cached(name string) (namespace, bool) {
	ns, ok := c.lister(name)
	if !ok {
		return namespace{}, false
	}
	return namespaceOf(ns), true
}

func (c *coreNamespaces) get(ctx context.Context, name string) (namespace, error) {
	ns, err := c.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return namespace{}, errNotFound
	}
	if err != nil {
		return namespace{}, err
	}
	return namespaceOf(ns), nil
}

func (c *coreNamespaces) finalize(ctx context.Context, name string, ns namespace, finalizers []string) error {
	full, err := c.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if full.ResourceVersion != ns.Version || full.UID != types.UID(ns.UID) {
		return errConflict
	}
	full.Spec.Finalizers = nil
	for _, f := range finalizers {
		full.Spec.Finalizers = append(full.Spec.Finalizers, corev1.FinalizerName(f))
	}
	_, err = c.client.CoreV1().Namespaces().Finalize(ctx, full, metav1.UpdateOptions{FieldManager: fieldManager})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: %w", errConflict, err)
	}
	return err
}

func namespaceOf(ns *corev1.Namespace) namespace {
	n := namespace{
		UID:         string(ns.UID),
		Terminating: ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating,
		Version:     ns.ResourceVersion,
	}
	for _, f := range ns.Spec.Finalizers {
		n.Finalizers = append(n.Finalizers, string(f))
	}
	return n
}
