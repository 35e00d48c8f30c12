package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
)

// API is a Source that watches RemoteAPIServers in a Kubernetes API, reads the
// Secrets that they name, and writes their status.
type API struct {
	log       *slog.Logger
	client    rest.Interface
	core      kubernetes.Interface
	namespace string
	servers   cache.Store
	secrets   cache.Store
	bell      chan struct{} // rings when servers have changed; holds one ring
	problem   atomic.Pointer[string]
	statuses  *statusWriter
}

// NewAPI makes a source that reads the API that config reaches. Servers may name Secrets in
// namespace; if it is "", no Secret is read. If writeStatus is set, the gateway's findings
// are written to each object's status. NewAPI does not connect.
func NewAPI(config *rest.Config, namespace string, writeStatus bool, log *slog.Logger) (*API, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.UserAgent = "xb-gateway"
	config.QPS, config.Burst = 50, 100
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("reach the API of RemoteAPIServers: %w", err)
	}
	gv := v1alpha1.GroupVersion()
	config.GroupVersion, config.APIPath = &gv, "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType = runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("reach the API of RemoteAPIServers: %w", err)
	}
	a := &API{
		log: log, client: client, core: core, namespace: namespace,
		servers: cache.NewStore(cache.MetaNamespaceKeyFunc), secrets: cache.NewStore(cache.MetaNamespaceKeyFunc),
		bell: make(chan struct{}, 1),
	}
	if writeStatus {
		a.statuses = newStatusWriter(a)
	}
	return a, nil
}

// Run implements Source.
func (a *API) Run(ctx context.Context, set func([]*v1alpha1.RemoteAPIServer)) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { a.follow(ctx, a.serverList(), &v1alpha1.RemoteAPIServer{}, a.servers, true); return nil })
	if a.namespace != "" {
		g.Go(func() error { a.follow(ctx, a.secretList(), &corev1.Secret{}, a.secrets, false); return nil })
	}
	if a.statuses != nil {
		g.Go(func() error { a.statuses.run(ctx); return nil })
	}
	g.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-a.bell:
				set(a.list())
			}
		}
	})
	return g.Wait()
}

// Problem implements Source.
func (a *API) Problem() string {
	if p := a.problem.Load(); p != nil {
		return *p
	}
	return ""
}

// list returns the servers of the API, including invalid ones: the condition of an invalid
// server says why it is not used.
func (a *API) list() []*v1alpha1.RemoteAPIServer {
	var servers []*v1alpha1.RemoteAPIServer
	for _, obj := range a.servers.List() {
		servers = append(servers, obj.(*v1alpha1.RemoteAPIServer))
	}
	if len(servers) > maxServers {
		a.log.Error("too many servers", "servers", len(servers), "most", maxServers)
	}
	return firstServers(servers)
}

// follow keeps store equal to the API until ctx ends.
func (a *API) follow(ctx context.Context, lw cache.ListerWatcher, kind runtime.Object, store cache.Store, ring bool) {
	if ring {
		store = ringing{store, a.ring}
	}
	cache.NewReflectorWithOptions(lw, kind, store, cache.ReflectorOptions{
		Name: "gateway", Backoff: &wait.Backoff{Duration: 300 * time.Millisecond, Factor: 1.5, Jitter: 0.5, Steps: 8, Cap: 5 * time.Second},
	}).RunWithContext(ctx)
}

func (a *API) ring() {
	select {
	case a.bell <- struct{}{}:
	default:
	}
}

func (a *API) serverList() cache.ListerWatcher {
	const resource = "remoteapiservers"
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := &v1alpha1.RemoteAPIServerList{}
			err := a.client.Get().Resource(resource).VersionedParams(&o, metav1.ParameterCodec).Do(ctx).Into(list)
			a.judge(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			w, err := a.client.Get().Resource(resource).VersionedParams(&o, metav1.ParameterCodec).Watch(ctx)
			a.judge(err)
			return w, err
		},
	}
}

func (a *API) secretList() cache.ListerWatcher {
	secrets := a.core.CoreV1().Secrets(a.namespace)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = v1alpha1.ServerLabel
			return secrets.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = v1alpha1.ServerLabel
			return secrets.Watch(ctx, o)
		},
	}
}

// judge notes whether the API of RemoteAPIServers can be read, and logs changes of that.
func (a *API) judge(err error) {
	if err == nil || errors.Is(err, context.Canceled) {
		if a.problem.Swap(nil) != nil {
			a.log.Info("API of RemoteAPIServers is back")
		}
		return
	}
	text := fmt.Sprintf("watch RemoteAPIServers: %v; the servers known before are served", err)
	if apierrors.IsNotFound(err) {
		text = "watch RemoteAPIServers: the API does not have them; install the definition: xb gateway crd | kubectl apply -f -"
	}
	if before := a.problem.Swap(&text); before == nil {
		a.log.Warn("API of RemoteAPIServers cannot be read; the servers known before are served", "error", err)
	}
}

// Credentials reads the gateway's own credentials for a server from the Secret that the
// server's spec names.
func (a *API) Credentials(s *v1alpha1.RemoteAPIServer) (Credentials, error) {
	if err := Check(s, false); err != nil {
		return Credentials{}, err
	}
	ref := s.Spec.Identity.Credentials
	if ref == nil || ref.SecretName == "" {
		return Credentials{}, nil
	}
	if a.namespace == "" {
		return Credentials{}, fmt.Errorf("spec.identity.credentials names Secret %q, but this gateway reads none: start it with --credentials-namespace", ref.SecretName)
	}
	obj, ok, err := a.secrets.GetByKey(a.namespace + "/" + ref.SecretName)
	if err != nil {
		return Credentials{}, err
	}
	var secret *corev1.Secret
	if ok {
		secret, ok = obj.(*corev1.Secret)
	}
	if !ok || secret.Labels[v1alpha1.ServerLabel] != s.Name {
		return Credentials{}, fmt.Errorf("spec.identity.credentials names Secret %q: there is none in namespace %q with the label %s=%s", ref.SecretName, a.namespace, v1alpha1.ServerLabel, s.Name)
	}
	return fromSecret(secret)
}

// ringing is a store that rings the bell when it is written to.
type ringing struct {
	cache.Store
	ring func()
}

func (s ringing) Add(obj any) error    { defer s.ring(); return s.Store.Add(obj) }
func (s ringing) Update(obj any) error { defer s.ring(); return s.Store.Update(obj) }
func (s ringing) Delete(obj any) error { defer s.ring(); return s.Store.Delete(obj) }
func (s ringing) Replace(objs []any, version string) error {
	defer s.ring()
	return s.Store.Replace(objs, version)
}

// statusWriter writes the last status of each server, one after the other.
type statusWriter struct {
	api  *API
	mu   sync.Mutex
	todo map[string]v1alpha1.RemoteAPIServerStatus
	bell chan struct{}
	last map[string]time.Time // when each status was last written; only run uses it
}

func newStatusWriter(a *API) *statusWriter {
	return &statusWriter{api: a, todo: map[string]v1alpha1.RemoteAPIServerStatus{}, bell: make(chan struct{}, 1), last: map[string]time.Time{}}
}

// SetStatus has a server's status written if it differs from the object's. It does not
// wait.
func (a *API) SetStatus(name string, status v1alpha1.RemoteAPIServerStatus) {
	w := a.statuses
	if w == nil {
		return
	}
	w.mu.Lock()
	w.todo[name] = status
	w.mu.Unlock()
	select {
	case w.bell <- struct{}{}:
	default:
	}
}

func (w *statusWriter) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.bell:
		}
		w.mu.Lock()
		todo := w.todo
		w.todo = map[string]v1alpha1.RemoteAPIServerStatus{}
		w.mu.Unlock()
		for name, status := range todo {
			if err := w.write(ctx, name, status); err != nil && ctx.Err() == nil {
				// The registry sets the status again a second later.
				w.api.log.Debug("status not written", "server", name, "error", err)
			}
		}
	}
}

func (w *statusWriter) write(ctx context.Context, name string, status v1alpha1.RemoteAPIServerStatus) error {
	obj, ok, err := w.api.servers.GetByKey(name)
	if err != nil || !ok {
		delete(w.last, name)
		return err
	}
	server := obj.(*v1alpha1.RemoteAPIServer)
	if !newsworthy(status, server.Status, time.Since(w.last[name])) {
		return nil
	}
	next := server.DeepCopy()
	next.Status = status
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err = w.api.client.Put().Resource("remoteapiservers").Name(name).SubResource("status").Body(next).Do(ctx).Error()
	if err == nil {
		w.last[name] = time.Now()
	}
	return err
}
