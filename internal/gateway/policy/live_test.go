package policy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/xbernetes/xbernetes/api/aggregation/reserve"
	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/call"
	"github.com/xbernetes/xbernetes/internal/gateway/canonical"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/namespaces"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/servers"
)

// liveServer is an xb server that can be killed and started again.
type liveServer struct {
	t      *testing.T
	dir    string
	listen string
	cmd    *exec.Cmd
	log    *bytes.Buffer
	config *rest.Config // set once: a server that starts again keeps its address and keys, and gateways read this meanwhile
}

// startLive starts an xb server from the binary in XB_BIN.
func startLive(t *testing.T) *liveServer {
	t.Helper()
	s := &liveServer{t: t, dir: t.TempDir(), listen: freeAddress(t)}
	t.Cleanup(s.kill)
	s.start()
	return s
}

func (s *liveServer) start() {
	s.t.Helper()
	s.log = &bytes.Buffer{}
	s.cmd = exec.Command(os.Getenv("XB_BIN"), "server", "--data-dir", s.dir, "--listen", s.listen)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	eventually(s.t, 3*time.Minute, "a server starts", func() error {
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(s.dir, "kubeconfig"))
		if err != nil {
			return err
		}
		config.QPS = -1
		config.Timeout = time.Minute
		_, err = kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces().Get(s.t.Context(), "default", metav1.GetOptions{})
		if err == nil && s.config == nil {
			s.config = config
		}
		return err
	})
}

func (s *liveServer) kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
	if s.t.Failed() {
		s.t.Logf("log of the server at %s:\n%s", s.listen, tail(s.log.Bytes()))
	}
}

func tail(b []byte) []byte { return b[max(0, len(b)-4000):] }

// eventually polls until f has no error.
func eventually(t *testing.T, within time.Duration, what string, f func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not within %v: %s: %v", within, what, err)
		case <-tick.C:
		}
	}
}

// live is a core server, a server that knows nothing of it, and two gateways.
type live struct {
	remote   *liveServer
	client   kubernetes.Interface // of the core server
	gateways []*liveGateway
}

type liveGateway struct {
	guard *Guard
	http  *httptest.Server
	stop  func()
}

const liveGroup = "live.example.com"

var gadgets = schema.GroupVersionResource{Group: liveGroup, Version: "v1", Resource: "gadgets"}

// liveServers is one guarded server, "remote".
type liveServers struct{ s *liveServer }

func (l liveServers) For(group string) (servers.Server, bool) {
	return servers.Server{Name: "remote", Guard: v1alpha1.Guard{Namespaces: true, Authorization: true, Quota: true}}, group == liveGroup
}
func (l liveServers) Kind(_ string, gvr schema.GroupVersionResource) (canonical.Kind, error) {
	return canonical.Kind{GroupVersionKind: gvr.GroupVersion().WithKind("Gadget"), Namespaced: true}, nil
}
func (l liveServers) Claims(_, group string) bool { return group == liveGroup }
func (l liveServers) Names() []string             { return []string{"remote"} }
func (l liveServers) Client(string) (*rest.Config, *http.Client, error) {
	client, err := rest.HTTPClientFor(l.s.config)
	return l.s.config, client, err
}

func newLive(t *testing.T) *live {
	t.Helper()
	if os.Getenv("XB_BIN") == "" {
		t.Skip("XB_BIN names no xb binary: make build, and set it to bin/xb")
	}
	return newLiveOver(t, startLive(t).config)
}

func newLiveOver(t *testing.T, core *rest.Config) *live {
	t.Helper()
	l := &live{remote: startLive(t), client: kubernetes.NewForConfigOrDie(core)}
	l.define(t)
	for range 2 {
		l.gateways = append(l.gateways, l.gateway(t))
	}
	return l
}

func (l *live) define(t *testing.T) {
	t.Helper()
	anything := true
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "gadgets." + liveGroup},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: liveGroup, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "gadgets", Kind: "Gadget"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &anything,
				}},
			}},
		},
	}
	client := apiextensions.NewForConfigOrDie(l.remote.config)
	if _, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "gadgets are served", func() error {
		_, err := dynamic.NewForConfigOrDie(l.remote.config).Resource(gadgets).List(t.Context(), metav1.ListOptions{})
		return err
	})
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "gadgets"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{liveGroup}, Resources: []string{"gadgets"}, Verbs: []string{"*"}},
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"reservations"}, ResourceNames: []string{"remote"}, Verbs: []string{"create"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "gadgets"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "gadgets"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "ann"}},
	}
	if _, err := l.client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// gateway is a Guard before a plain reverse proxy.
func (l *live) gateway(t *testing.T) *liveGateway {
	t.Helper()
	guard, err := New(Config{
		Core: l.client, Servers: liveServers{l.remote}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Identity: t.Name(), RequestTimeout: 5 * time.Second, Grace: 5 * time.Second, CacheTTL: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(l.remote.config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(l.remote.config.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(target); p.Out.Header.Del("X-User") },
		ErrorLog:  slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo),
	}
	mux := http.NewServeMux()
	mux.Handle("/", guard.Wrap(proxy))
	mux.Handle("/apis/"+v1alpha1.GroupName+"/", guard.Reservations())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r, err := call.Begin(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		ctx := request.WithUser(r.Context(), &user.DefaultInfo{Name: r.Header.Get("X-User")})
		if server, ok := (liveServers{}).For(call.Of(r).Info.APIGroup); ok {
			call.Of(r).Server = &v1alpha1.RemoteAPIServer{ObjectMeta: metav1.ObjectMeta{Name: server.Name}, Spec: v1alpha1.RemoteAPIServerSpec{Guard: server.Guard}}
		}
		mux.ServeHTTP(w, r.WithContext(ctx))
	}))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- guard.Run(ctx) }()
	g := &liveGateway{guard: guard, http: server}
	g.stop = sync.OnceFunc(func() { server.Close(); cancel(); <-done })
	t.Cleanup(g.stop)
	return g
}

// as is a client of a gateway.
func (g *liveGateway) as(name string) *rest.Config {
	return &rest.Config{Host: g.http.URL, QPS: -1, WrapTransport: func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			r.Header.Set("X-User", name)
			return next.RoundTrip(r)
		})
	}}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (g *liveGateway) gadgets(who, namespace string) dynamic.ResourceInterface {
	return dynamic.NewForConfigOrDie(g.as(who)).Resource(gadgets).Namespace(namespace)
}

func gadget(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gadgets.GroupVersion().String(), "kind": "Gadget",
		"metadata": map[string]any{"name": name},
	}}
}

func (l *live) namespace(t *testing.T, name string, hard int64) {
	t.Helper()
	if _, err := l.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The server is a whole Kubernetes, which wants a namespace of its own.
	if _, err := kubernetes.NewForConfigOrDie(l.remote.config).CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if hard < 0 {
		return
	}
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "q", Namespace: name},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			"count/gadgets." + liveGroup: *resource.NewQuantity(hard, resource.DecimalSI),
			"count/configmaps":           resource.MustParse("50"),
		}},
	}
	if _, err := l.client.CoreV1().ResourceQuotas(name).Create(t.Context(), quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, g := range l.gateways { // a new quota holds from when it is seen
		eventually(t, time.Minute, "the gateway sees the quota", func() error {
			if lim, err := g.guard.core.Quotas.Limit(t.Context(), name, "gadgets."+liveGroup); err != nil || lim.Hard != hard {
				return fmt.Errorf("%+v, %w", lim, err)
			}
			return nil
		})
	}
	l.usedBecomes(t, name, 0)
}

func (l *live) used(t *testing.T, namespace string) int64 {
	t.Helper()
	q, err := l.client.CoreV1().ResourceQuotas(namespace).Get(t.Context(), "q", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	used, ok := q.Status.Used["count/gadgets."+liveGroup]
	if !ok {
		return -1
	}
	return used.Value()
}

func (l *live) there(t *testing.T, namespace string) int {
	t.Helper()
	list, err := dynamic.NewForConfigOrDie(l.remote.config).Resource(gadgets).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return len(list.Items)
}

func (l *live) usedBecomes(t *testing.T, namespace string, want int64) {
	t.Helper()
	eventually(t, time.Minute, fmt.Sprintf("the quota shows %d", want), func() error {
		if n := l.used(t, namespace); n != want {
			return fmt.Errorf("it shows %d", n)
		}
		return nil
	})
}

// TestLive holds the policies over a server that knows nothing of them, with
// two gateways, against a core server with Kubernetes' own controllers.
func TestLive(t *testing.T) {
	l := newLive(t)
	t.Run("namespace and user", l.testChecks)
	t.Run("quota", l.testQuota)
	t.Run("ways to create", l.testWays)
	t.Run("reservations", l.testReservations)
	t.Run("a gateway dies", l.testCrash)
	t.Run("nothing held", l.testRelease)
	t.Run("namespace goes", l.testEmptying)
}

func (l *live) testChecks(t *testing.T) {
	g := l.gateways[0]
	_, err := g.gadgets("ann", "nowhere").Create(t.Context(), gadget("a"), metav1.CreateOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("create in a namespace that does not exist: %v", err)
	}
	l.namespace(t, "checks", -1)
	_, err = g.gadgets("bob", "checks").Create(t.Context(), gadget("a"), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("create by somebody who may not: %v", err)
	}
	if n := l.there(t, "checks"); n != 0 {
		t.Errorf("%d gadgets were created", n)
	}
	if _, err := g.gadgets("ann", "checks").Create(t.Context(), gadget("a"), metav1.CreateOptions{}); err != nil {
		t.Fatalf("create by somebody who may: %v", err)
	}
	ns, err := l.client.CoreV1().Namespaces().Get(t.Context(), "checks", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerName(namespaces.Finalizer("remote"))) {
		t.Errorf("finalizers are %v", ns.Spec.Finalizers)
	}
}

func (l *live) testQuota(t *testing.T) {
	const hard, creators, each = 40, 50, 2
	l.namespace(t, "quota", hard)
	var created, refused atomic.Int64
	var all sync.WaitGroup
	for i := range creators {
		all.Go(func() {
			c := l.gateways[i%len(l.gateways)].gadgets("ann", "quota")
			for j := range each {
				_, err := c.Create(t.Context(), gadget(fmt.Sprintf("g%d-%d", i, j)), metav1.CreateOptions{})
				switch {
				case err == nil:
					created.Add(1)
				case apierrors.IsForbidden(err):
					refused.Add(1)
				default:
					t.Errorf("create: %v", err)
				}
			}
		})
	}
	all.Wait()
	if created.Load() != hard || refused.Load() != creators*each-hard || l.there(t, "quota") != hard {
		t.Errorf("%d created, %d refused, %d there; want %d of %d", created.Load(), refused.Load(), l.there(t, "quota"), hard, creators*each)
	}
	l.usedBecomes(t, "quota", hard)

	// A name that is taken is given back; so is what is deleted.
	c := l.gateways[0].gadgets("ann", "quota")
	list, err := c.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), list.Items[0].GetName(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := c.Create(t.Context(), gadget(list.Items[1].GetName()), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
			t.Errorf("create what exists: %v", err)
		}
	}
	if _, err := l.gateways[1].gadgets("ann", "quota").Create(t.Context(), gadget("instead"), metav1.CreateOptions{}); err != nil {
		t.Errorf("create in the place of what was deleted: %v", err)
	}
	if err := c.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	l.usedBecomes(t, "quota", 0)
	// The core server counts its own resources by itself. Whether kube-root-ca.crt is among them
	// depends on which of its controllers came first.
	if _, err := l.client.CoreV1().ConfigMaps("quota").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "own"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "the core server counts config maps", func() error {
		q, err := l.client.CoreV1().ResourceQuotas("quota").Get(t.Context(), "q", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if n := q.Status.Used["count/configmaps"]; n.Value() < 1 || n.Value() > 2 {
			return fmt.Errorf("it counts %v", n.Value())
		}
		return nil
	})
}

func (l *live) testWays(t *testing.T) {
	l.namespace(t, "ways", 2)
	c := l.gateways[0].gadgets("ann", "ways")
	if _, err := c.Create(t.Context(), gadget("dry"), metav1.CreateOptions{DryRun: []string{"All"}}); err != nil {
		t.Errorf("dry run: %v", err)
	}
	generated := gadget("")
	generated.SetName("")
	generated.SetGenerateName("some-")
	if _, err := c.Create(t.Context(), generated, metav1.CreateOptions{}); err != nil {
		t.Errorf("create with a generated name: %v", err)
	}
	apply := func(name string) error {
		body, err := gadget(name).MarshalJSON()
		if err != nil {
			return err
		}
		_, err = c.Patch(t.Context(), name, types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: "test"})
		return err
	}
	if err := apply("applied"); err != nil {
		t.Errorf("apply: %v", err)
	}
	l.usedBecomes(t, "ways", 2)
	if err := apply("applied"); err != nil {
		t.Errorf("apply what is there, with the quota used up: %v", err)
	}
	if err := apply("more"); !apierrors.IsForbidden(err) {
		t.Errorf("apply something new with the quota used up: %v", err)
	}
	if _, err := c.Create(t.Context(), gadget("dry"), metav1.CreateOptions{DryRun: []string{"All"}}); !apierrors.IsForbidden(err) {
		t.Errorf("dry run with the quota used up: %v", err)
	}
	if n := l.there(t, "ways"); n != 2 {
		t.Errorf("%d are there", n)
	}
}

func (l *live) testReservations(t *testing.T) {
	l.namespace(t, "direct", 1)
	client, err := reserve.New(l.gateways[1].as("ann"), "remote")
	if err != nil {
		t.Fatal(err)
	}
	direct := dynamic.NewForConfigOrDie(l.remote.config).Resource(gadgets).Namespace("direct")
	req := reserve.Request{Namespace: "direct", Group: liveGroup, Version: "v1", Resource: "gadgets", User: &v1alpha1.ReservationUser{Username: "ann"}}
	create := func(ctx context.Context) error {
		_, err := direct.Create(ctx, gadget("a"), metav1.CreateOptions{})
		return err
	}
	failed := errors.New("the disk is full")
	if err := client.Create(t.Context(), req, func(context.Context) error {
		return fmt.Errorf("%w: %w", reserve.ErrNotCreated, failed)
	}); !errors.Is(err, failed) {
		t.Errorf("a create that fails: %v", err)
	}
	if err := client.Create(t.Context(), req, create); err != nil {
		t.Errorf("create after one that failed: %v", err)
	}
	if err := client.Create(t.Context(), req, create); !apierrors.IsForbidden(err) {
		t.Errorf("create with the quota used up: %v", err)
	}
	if err := direct.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.Create(t.Context(), req, create); err != nil {
		t.Errorf("create after a delete that the gateway has not seen: %v", err)
	}
	req.User.Username = "bob"
	if _, err := client.Reserve(t.Context(), req); !apierrors.IsForbidden(err) {
		t.Errorf("reserve for somebody who may not: %v", err)
	}
	req.User.Username, req.Namespace = "ann", "nowhere"
	if _, err := client.Reserve(t.Context(), req); !apierrors.IsNotFound(err) {
		t.Errorf("reserve in no namespace: %v", err)
	}
	other, err := reserve.New(l.gateways[1].as("bob"), "remote")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Reserve(t.Context(), req); !apierrors.IsForbidden(err) {
		t.Errorf("reserve as somebody who may not: %v", err)
	}
}

func (l *live) testRelease(t *testing.T) {
	l.namespace(t, "released", -1)
	c := l.gateways[0].gadgets("ann", "released")
	if _, err := c.Create(t.Context(), gadget("a"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	l.finalizerGoes(t, "released")
}

func (l *live) finalizerGoes(t *testing.T, namespace string) {
	t.Helper()
	eventually(t, time.Minute, "the finalizer goes with the last object", func() error {
		ns, err := l.client.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
		if err == nil && slices.Contains(ns.Spec.Finalizers, corev1.FinalizerName(namespaces.Finalizer("remote"))) {
			return errors.New("it is there")
		}
		return err
	})
}

func (l *live) testEmptying(t *testing.T) {
	for _, name := range []string{"full", "bare"} {
		l.namespace(t, name, 5)
	}
	c := l.gateways[0].gadgets("ann", "full")
	for i := range 3 {
		if _, err := c.Create(t.Context(), gadget(fmt.Sprintf("g%d", i)), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	l.remote.kill()
	for _, name := range []string{"full", "bare"} {
		if err := l.client.CoreV1().Namespaces().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	gone := func(name string) func() error {
		return func() error {
			ns, err := l.client.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("finalizers %v, %w", ns.Spec.Finalizers, err)
		}
	}
	eventually(t, time.Minute, "a namespace goes of which the dead server holds nothing", gone("bare"))
	if err := gone("full")(); err == nil {
		t.Error("a namespace is gone of which the dead server holds something")
	}
	_, err := c.Create(t.Context(), gadget("late"), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("create in a namespace that is going: %v", err)
	}
	l.remote.start()
	eventually(t, 2*time.Minute, "the namespace goes once the server is back", gone("full"))
	if n := l.there(t, "full"); n != 0 {
		t.Errorf("%d gadgets are left", n)
	}
	eventually(t, time.Minute, "no ledger is left of it", func() error {
		list, err := l.client.CoreV1().ConfigMaps(DefaultNamespace).List(t.Context(), metav1.ListOptions{})
		for _, cm := range list.Items {
			if name, _, _ := strings.Cut(cm.Name, "."); name == "full" || name == "bare" {
				return fmt.Errorf("there is %s", cm.Name)
			}
		}
		return err
	})
}
