package controlplane

import (
	"context"
	"sync/atomic"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

// tokenGetter looks up the objects that a service-account token is bound to. It
// answers from the informers' caches. If an object is not there, it asks the store,
// because a token may arrive here before the watch has brought the account that
// another server made.
type tokenGetter struct {
	accounts corelisters.ServiceAccountLister
	secrets  corelisters.SecretLister
	live     atomic.Pointer[kubernetes.Clientset] // set before serving starts
}

var _ serviceaccount.ServiceAccountTokenGetter = (*tokenGetter)(nil)

func (g *tokenGetter) bind(f informers.SharedInformerFactory) serviceaccount.ServiceAccountTokenGetter {
	g.accounts = f.Core().V1().ServiceAccounts().Lister()
	g.secrets = f.Core().V1().Secrets().Lister()
	return g
}

func (g *tokenGetter) GetServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	sa, err := g.accounts.ServiceAccounts(namespace).Get(name)
	if live := g.live.Load(); apierrors.IsNotFound(err) && live != nil {
		return live.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	return sa, err
}

func (g *tokenGetter) GetSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	secret, err := g.secrets.Secrets(namespace).Get(name)
	if live := g.live.Load(); apierrors.IsNotFound(err) && live != nil {
		return live.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	return secret, err
}

func (g *tokenGetter) GetPod(_ context.Context, _, name string) (*corev1.Pod, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
}

func (g *tokenGetter) GetNode(_ context.Context, name string) (*corev1.Node, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("nodes"), name)
}

func (g *tokenGetter) GetValidatingWebhookConfiguration(ctx context.Context, name string) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	live := g.live.Load()
	if live == nil {
		return nil, apierrors.NewNotFound(admissionregistrationv1.Resource("validatingwebhookconfigurations"), name)
	}
	return live.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
}

func (g *tokenGetter) GetMutatingWebhookConfiguration(ctx context.Context, name string) (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	live := g.live.Load()
	if live == nil {
		return nil, apierrors.NewNotFound(admissionregistrationv1.Resource("mutatingwebhookconfigurations"), name)
	}
	return live.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
}
