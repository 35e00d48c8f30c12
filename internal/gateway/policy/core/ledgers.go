package core

import (
	"context"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/xbernetes/xbernetes/internal/gateway/policy/ledger"
)

const (
	// ledgerLabel is on the ConfigMaps that hold ledgers.
	ledgerLabel = "aggregation.xbernetes.io/ledger"
	// ledgerData is where such a ConfigMap's data has the ledger's text.
	ledgerData = "ledger"
	// fieldManager is the gateway's name as a writer.
	fieldManager = "xb-gateway"
)

// Ledgers is a ledger.Store in ConfigMaps of one namespace of the core server,
// which only the gateways may write. The API server's optimistic concurrency is
// the compare-and-swap.
type Ledgers struct {
	client    kubernetes.Interface
	namespace string

	mu   sync.Mutex
	made bool // the namespace was there when it was needed last; guarded by mu
}

func ledgerName(k ledger.Key) string { return k.Namespace + "." + k.UID }

// ledgerKey is the inverse of ledgerName: a namespace's name has no dot.
func ledgerKey(name string) (ledger.Key, bool) {
	ns, uid, ok := strings.Cut(name, ".")
	return ledger.Key{Namespace: ns, UID: uid}, ok && ns != "" && uid != ""
}

// Read implements ledger.Store.
func (s *Ledgers) Read(ctx context.Context, k ledger.Key) (text, version string, err error) {
	cm, err := s.client.CoreV1().ConfigMaps(s.namespace).Get(ctx, ledgerName(k), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", "", ledger.ErrNotFound
	}
	if err != nil {
		return "", "", err
	}
	return cm.Data[ledgerData], cm.ResourceVersion, nil
}

// Write implements ledger.Store.
func (s *Ledgers) Write(ctx context.Context, k ledger.Key, text, version string) (string, error) {
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name:            ledgerName(k),
			Namespace:       s.namespace,
			Labels:          map[string]string{ledgerLabel: "true"},
			ResourceVersion: version,
		},
		Data: map[string]string{ledgerData: text},
	}
	client := s.client.CoreV1().ConfigMaps(s.namespace)
	var err error
	if version == "" {
		if err := s.makeNamespace(ctx); err != nil {
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
		return "", fmt.Errorf("%w: %w", ledger.ErrConflict, err)
	case err != nil:
		return "", err
	}
	return cm.ResourceVersion, nil
}

// Remove implements ledger.Store.
func (s *Ledgers) Remove(ctx context.Context, k ledger.Key, version string) error {
	err := s.client.CoreV1().ConfigMaps(s.namespace).Delete(ctx, ledgerName(k), metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{ResourceVersion: &version},
	})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: %w", ledger.ErrConflict, err)
	}
	return err
}

// makeNamespace makes the namespace that the ledgers are in, if it is not there.
func (s *Ledgers) makeNamespace(ctx context.Context) error {
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
