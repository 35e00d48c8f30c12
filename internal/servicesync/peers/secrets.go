package peers

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/internal/kubeconfig"
)

// Label marks a Secret that holds a peer's kubeconfig, under the key kubeconfig. The
// label's value is the peer's name; if it is empty, the Secret's name is.
const Label = "servicesync.xbernetes.io/peer"

// Secrets finds a peer in each Secret of a namespace that has Label. A kubeconfig in a
// Secret must not name a command or a file.
func Secrets(client kubernetes.Interface, namespace string) Source {
	return &secrets{client: client, namespace: namespace}
}

type secrets struct {
	client    kubernetes.Interface
	namespace string
}

func (s *secrets) Run(ctx context.Context, found func([]Peer)) error {
	changed := make(chan struct{}, 1)
	faults := make(chan error, 1)
	nudge := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	informer := cache.NewSharedIndexInformer(
		cache.NewFilteredListWatchFromClient(s.client.CoreV1().RESTClient(), "secrets", s.namespace, func(o *metav1.ListOptions) {
			o.LabelSelector, o.FieldSelector = Label, fields.Everything().String()
		}), &corev1.Secret{}, 0, nil)
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { nudge() }, UpdateFunc: func(any, any) { nudge() }, DeleteFunc: func(any) { nudge() },
	}); err != nil {
		return fmt.Errorf("watch secrets of peers: %w", err)
	}
	if err := informer.SetWatchErrorHandler(func(_ *cache.Reflector, err error) {
		select {
		case faults <- err:
		default:
		}
	}); err != nil {
		return fmt.Errorf("watch secrets of peers: %w", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		informer.Run(ctx.Done())
	}()
	defer func() { <-done }()
	// The first message says that the list is complete, even if it is empty.
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			nudge()
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			if informer.HasSynced() {
				found(s.parse(informer.GetStore().List()))
			}
		case err := <-faults:
			// After the first list, a watch that breaks removes no peer.
			if !informer.HasSynced() {
				origin := "secrets in namespace " + s.namespace
				found([]Peer{{Name: s.namespace, Origin: origin, Unread: true, Err: fmt.Errorf("list %s that are labelled %s: %w", origin, Label, err)}})
			}
		}
	}
}

func (s *secrets) parse(objects []any) []Peer {
	var peers []Peer
	for _, o := range objects {
		secret := o.(*corev1.Secret)
		origin := fmt.Sprintf("secret %s/%s", secret.Namespace, secret.Name)
		name := secret.Labels[Label]
		if name == "" {
			name = secret.Name
		}
		data, ok := secret.Data["kubeconfig"]
		if !ok {
			peers = append(peers, Peer{Name: name, Origin: origin, Err: fmt.Errorf("%s has no key kubeconfig", origin)})
			continue
		}
		peers = append(peers, parse(name, origin, data, "", kubeconfig.Inline))
	}
	slices.SortFunc(peers, func(a, b Peer) int { return strings.Compare(a.Origin, b.Origin) })
	return peers
}
