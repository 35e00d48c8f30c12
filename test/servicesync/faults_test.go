package servicesync

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/xbernetes/xbernetes/test/lab/cluster"
	"github.com/xbernetes/xbernetes/test/lab/wait"
)

// Each test here is named after a fault of the k8s-endpoints-sync-controller,
// and fails when XB_ORIGINAL runs that in place of xb.

// pair starts controllers in two of the clusters, for one namespace.
func pair(t *testing.T, args ...string) (a, b *cluster.Cluster, ns string, controllers []*controller) {
	t.Helper()
	all := clusters(t)
	a, b = all[0], all[1]
	ns = namespaceIn(t, namespaceName(t), a, b)
	return a, b, ns, startAll(t, []string{"NSTOWATCH=" + ns}, args, a, b)
}

func namespaceName(t *testing.T) string {
	name := strings.ToLower(strings.TrimPrefix(strings.ReplaceAll(t.Name(), "/", "-"), "Test"))
	return fmt.Sprintf("%.40s-%d", strings.NewReplacer("_", "-", ",", "").Replace(name), time.Now().Unix()%100000)
}

func TestFaultNamespacesToWatchAreIgnored(t *testing.T) {
	all := clusters(t)
	a, b := all[0], all[1]
	name := namespaceName(t)
	watched, other := namespaceIn(t, name, a, b), namespaceIn(t, name+"-other", a, b)
	startAll(t, []string{"NSTOWATCH=" + watched}, nil, a, b)
	createService(t, a, other, "web")
	createService(t, a, watched, "web")
	expectService(t, b, watched, "web", nil)
	caughtUp(t, watched, a, b)
	if get(t.Context(), t, b, other, "web") != nil {
		t.Errorf("NSTOWATCH is %s, and a Service of %s was imported", watched, other)
	}
}

func TestFaultNamespaceLabelsAreCopied(t *testing.T) {
	all := clusters(t)[:2]
	ns := namespaceIn(t, namespaceName(t), all...)
	var before []*corev1.Namespace
	for _, c := range all {
		label(t, c, ns, "owner", c.Name)
		before = append(before, namespaceOf(t, c, ns))
	}
	startAll(t, []string{"NSTOWATCH=" + ns}, nil, all...)
	createService(t, all[0], ns, "web")
	expectService(t, all[1], ns, "web", nil)
	caughtUp(t, ns, all[0], all[1])
	for i, c := range all {
		unchanged(t, "the namespace in "+c.Name, before[i], namespaceOf(t, c, ns))
	}
}

func namespaceOf(t testing.TB, c *cluster.Cluster, ns string) *corev1.Namespace {
	t.Helper()
	got, err := c.Client.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func label(t testing.TB, c *cluster.Cluster, ns, key, value string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, key, value)
	if _, err := c.Client.CoreV1().Namespaces().Patch(t.Context(), ns, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestFaultNamespaceDeletionIsCopied(t *testing.T) {
	all := clusters(t)
	a, b := all[0], all[1]
	ns := namespaceIn(t, namespaceName(t), a)
	startAll(t, []string{"NSTOWATCH=" + ns}, []string{"--create-namespaces"}, a, b)
	createService(t, a, ns, "web")
	expectService(t, b, ns, "web", nil)
	createService(t, b, ns, "own")
	expectService(t, a, ns, "own", nil)
	before := get(t.Context(), t, b, ns, "own")
	deleted := namespaceOf(t, a, ns).UID
	if err := a.Client.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expectGone(t, b, ns, "web")
	slowly(t, "the namespace in "+a.Name+" is gone", func(ctx context.Context) error {
		left, err := a.Client.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
		// It may be back: the other cluster's own Service asks for it.
		if apierrors.IsNotFound(err) || err == nil && left.UID != deleted {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("it is there: %v", left.Status)
	})
	for range 30 { // the original takes a moment to hear of it
		kept, err := b.Client.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{})
		if err != nil || kept.DeletionTimestamp != nil {
			t.Fatalf("the namespace of %s was deleted, too: %v %v", b.Name, kept.DeletionTimestamp, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	unchanged(t, "the Service of its own", before, get(t.Context(), t, b, ns, "own"))
}

func TestFaultHeadlessBecomesClusterIP(t *testing.T) {
	a, b, ns, _ := pair(t)
	if _, err := a.Client.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": "db"}, PublishNotReadyAddresses: true,
			Ports: []corev1.ServicePort{{Name: "sql", Port: 5432}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := addPod(t, a, ns, "db", "db-0")
	expectRotation(t, b, ns, "db", pod)
	got := get(t.Context(), t, b, ns, "db")
	if got.Spec.ClusterIP != corev1.ClusterIPNone {
		t.Errorf("a headless Service was imported with the address %q", got.Spec.ClusterIP)
	}
	all, err := slicesOf(t.Context(), b, ns, "db")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if _, ok := s.Labels[corev1.IsHeadlessService]; !ok {
			t.Errorf("slice %s of a headless Service lacks the label %s", s.Name, corev1.IsHeadlessService)
		}
	}
}

func TestFaultNodePortBecomesClusterIP(t *testing.T) {
	a, b, ns, _ := pair(t)
	if _, err := a.Client.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "edge"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, Selector: map[string]string{"app": "edge"}, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyCluster,
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(cluster.Port)}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expectService(t, b, ns, "edge", func(s *corev1.Service) error {
		if s.Spec.Type != corev1.ServiceTypeNodePort || s.Spec.Ports[0].NodePort == 0 {
			return fmt.Errorf("it is a %s with the ports %v", s.Spec.Type, s.Spec.Ports)
		}
		return nil
	})
	pod := addPod(t, a, ns, "edge", "edge-0")
	expectRotation(t, b, ns, "edge", pod)
}

func TestFaultExternalNameFails(t *testing.T) {
	a, b, ns, _ := pair(t)
	if _, err := a.Client.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "out"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "db.example.com"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expectService(t, b, ns, "out", func(s *corev1.Service) error {
		if s.Spec.Type != corev1.ServiceTypeExternalName || s.Spec.ExternalName != "db.example.com" {
			return fmt.Errorf("it is %s %q", s.Spec.Type, s.Spec.ExternalName)
		}
		return nil
	})
}

func TestFaultFieldsAreDropped(t *testing.T) {
	a, b, ns, _ := pair(t)
	protocol, timeout, dual := "kubernetes.io/h2c", int32(77), corev1.IPFamilyPolicyPreferDualStack
	spec := corev1.ServiceSpec{
		Selector:              map[string]string{"app": "web"},
		SessionAffinity:       corev1.ServiceAffinityClientIP,
		SessionAffinityConfig: &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &timeout}},
		IPFamilyPolicy:        &dual,
		IPFamilies:            []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol},
		Ports:                 []corev1.ServicePort{{Name: "grpc", Port: 90, TargetPort: intstr.FromString("http"), AppProtocol: &protocol}},
	}
	if _, err := a.Client.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{"example.com/team": "shop"}, Labels: map[string]string{"tier": "front"}},
		Spec:       spec,
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	want := corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, SessionAffinity: spec.SessionAffinity, SessionAffinityConfig: spec.SessionAffinityConfig,
		IPFamilyPolicy: spec.IPFamilyPolicy, IPFamilies: spec.IPFamilies,
		Ports: []corev1.ServicePort{{Name: "grpc", Protocol: corev1.ProtocolTCP, Port: 90, AppProtocol: &protocol}},
	}
	got := expectService(t, b, ns, "web", func(s *corev1.Service) error {
		diff := cmp.Diff(want, s.Spec,
			cmpopts.IgnoreFields(corev1.ServiceSpec{}, "ClusterIP", "ClusterIPs", "InternalTrafficPolicy"),
			cmpopts.IgnoreFields(corev1.ServicePort{}, "TargetPort"))
		if diff != "" {
			return fmt.Errorf("its spec (-want +got):\n%s", diff)
		}
		return nil
	})
	if got.Annotations["example.com/team"] != "shop" || got.Labels["tier"] != "front" {
		t.Errorf("annotations %v and labels %v lack those of the Service", got.Annotations, got.Labels)
	}
	pod := addPod(t, a, ns, "web", "web-0")
	expectRotation(t, b, ns, "web", pod)
	all, err := slicesOf(t.Context(), b, ns, "web")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		for _, p := range s.Ports {
			if *p.Port != cluster.Port || *p.Name != "grpc" || p.AppProtocol == nil || *p.AppProtocol != protocol {
				t.Errorf("slice %s has the port %v", s.Name, p)
			}
		}
	}
}

func TestFaultNotReadyEndpointsAreDropped(t *testing.T) {
	a, b, ns, _ := pair(t)
	createService(t, a, ns, "web")
	one, two := addPod(t, a, ns, "web", "web-0"), addPod(t, a, ns, "web", "web-1")
	expectRotation(t, b, ns, "web", one, two)
	if err := two.SetReady(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	expectRotation(t, b, ns, "web", one)
	endpoints, err := endpointsOf(t.Context(), b, ns, "web")
	if err != nil {
		t.Fatal(err)
	}
	if len(endpoints) != 2 {
		t.Errorf("%d endpoints were imported; want the one that is not ready, too", len(endpoints))
	}
	for _, e := range endpoints {
		if e.NodeName != nil || e.TargetRef != nil {
			t.Errorf("endpoint %v tells of a node or a pod that is not of this cluster", e)
		}
	}
	if err := one.Remove(within(t, patience()), func(ctx context.Context) error {
		return wait.Until(ctx, "the endpoint is terminating in "+b.Name, func(ctx context.Context) error {
			endpoints, err := endpointsOf(ctx, b, ns, "web")
			if err != nil {
				return err
			}
			for _, e := range endpoints {
				if e.Addresses[0] == one.IP && e.Conditions.Terminating != nil && *e.Conditions.Terminating && *e.Conditions.Serving {
					return nil
				}
			}
			return fmt.Errorf("the endpoints are %v", endpoints)
		})
	}); err != nil {
		t.Error(err)
	}
}

func TestFaultServiceInBothClusters(t *testing.T) {
	a, b, ns, _ := pair(t)
	createService(t, a, ns, "web")
	before := createService(t, b, ns, "web")
	addPod(t, a, ns, "web", "web-a")
	pod := addPod(t, b, ns, "web", "web-b")
	expectRotation(t, b, ns, "web", pod)
	caughtUp(t, ns, a, b)
	expectRotation(t, b, ns, "web", pod) // a conflict changes no traffic, and is said
	expectEvent(t, b, ns, "web", "NativeTwice", a.Name)
	if err := a.Client.CoreV1().Services(ns).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	caughtUp(t, ns, a, b)
	after := get(t.Context(), t, b, ns, "web")
	if after == nil {
		t.Fatalf("the Service of %s was deleted with that of %s", b.Name, a.Name)
	}
	unchanged(t, "the Service of "+b.Name, before.Spec, after.Spec)
	expectRotation(t, b, ns, "web", pod)
}

func TestFaultUnionFreezesEndpoints(t *testing.T) {
	a, b, ns, _ := pair(t)
	createService(t, a, ns, "web")
	first := addPod(t, a, ns, "web", "web-a0")
	expectRotation(t, b, ns, "web", first)
	annotate(t, a, ns, "web", mode, "union")
	far := addPod(t, b, ns, "web", "web-b0")
	for _, c := range []*cluster.Cluster{a, b} {
		expectRotation(t, c, ns, "web", first, far)
	}
	second := addPod(t, a, ns, "web", "web-a1")
	for _, c := range []*cluster.Cluster{a, b} {
		expectRotation(t, c, ns, "web", first, second, far)
	}
	if err := first.Remove(t.Context(), cluster.Grace(0)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*cluster.Cluster{a, b} {
		expectRotation(t, c, ns, "web", second, far)
	}
}

func TestFaultReceiverWithoutReadyEndpoints(t *testing.T) {
	a, b, ns, _ := pair(t)
	createService(t, a, ns, "web")
	pod := addPod(t, a, ns, "web", "web-a")
	expectRotation(t, b, ns, "web", pod)
	annotate(t, a, ns, "web", mode, "receiver") // and nothing runs in b
	caughtUp(t, ns, a, b)
	caughtUp(t, ns, b, a)
	for _, c := range []*cluster.Cluster{a, b} {
		expectRotation(t, c, ns, "web", pod)
	}
	if got := get(t.Context(), t, a, ns, "web"); got.Spec.Selector["app"] != "web" {
		t.Errorf("the Service has given up its selector, %v, for a cluster where nothing is ready", got.Spec.Selector)
	}
	successor := addPod(t, b, ns, "web", "web-b")
	for _, c := range []*cluster.Cluster{a, b} {
		expectRotation(t, c, ns, "web", successor)
	}
}

func TestFaultSingularFreezesTheReplica(t *testing.T) {
	a, b, ns, _ := pair(t)
	createService(t, a, ns, "web")
	pod := addPod(t, a, ns, "web", "web-a")
	expectRotation(t, b, ns, "web", pod)
	annotate(t, b, ns, "web", mode, "singular")
	expectRotation(t, b, ns, "web")
	expectRotation(t, a, ns, "web", pod)
}

func TestFaultSingularIsForEver(t *testing.T) {
	a, b, ns, _ := pair(t)
	createService(t, a, ns, "web")
	pod := addPod(t, a, ns, "web", "web-a")
	expectRotation(t, b, ns, "web", pod)
	annotate(t, a, ns, "web", mode, "singular")
	expectGone(t, b, ns, "web")
	annotate(t, a, ns, "web", mode, "")
	expectRotation(t, b, ns, "web", pod)
}

func TestFaultMissedDeletesLeak(t *testing.T) {
	a, b, ns, controllers := pair(t)
	createService(t, a, ns, "web")
	createService(t, a, ns, "kept")
	pod := addPod(t, a, ns, "web", "web-a")
	expectRotation(t, b, ns, "web", pod)
	expectService(t, b, ns, "kept", nil)
	for _, c := range controllers {
		c.Kill()
	}
	if err := a.Client.CoreV1().Services(ns).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range controllers {
		c.start(t)
	}
	expectGone(t, b, ns, "web")
	eventually(t, "its slices are gone", func(ctx context.Context) error {
		all, err := slicesOf(ctx, b, ns, "web")
		if err == nil && len(all) > 0 {
			err = fmt.Errorf("%d are left", len(all))
		}
		return err
	})
	if get(t.Context(), t, b, ns, "kept") == nil {
		t.Error("a Service that still exists was swept")
	}
}

func TestFaultEndpointsBeforeTheNamespaceAreLost(t *testing.T) {
	all := clusters(t)
	a, b := all[0], all[1]
	ns := namespaceName(t)
	fence := namespaceIn(t, ns+"-fence", a, b)
	startAll(t, []string{"NSTOWATCH=" + ns + "," + fence}, nil, a, b)
	namespaceIn(t, ns, a)
	createService(t, a, ns, "web")
	pod := addPod(t, a, ns, "web", "web-a")
	expectRotation(t, a, ns, "web", pod)
	caughtUp(t, fence, a, b)
	if _, err := b.Client.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a namespace was made that nobody asked for: %v", err)
	} else {
		namespaceIn(t, ns, b)
	}
	expectRotation(t, b, ns, "web", pod)
}

func TestFaultShortIPv6Panics(t *testing.T) {
	a, b, ns, controllers := pair(t)
	family := corev1.IPv6Protocol
	if _, err := a.Client.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "six"},
		Spec:       corev1.ServiceSpec{IPFamilies: []corev1.IPFamily{family}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Client.CoreV1().Endpoints(ns).Create(t.Context(), &corev1.Endpoints{ //nolint:staticcheck // deprecated, and still served
		ObjectMeta: metav1.ObjectMeta{Name: "six"},
		Subsets:    []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: "fd::1"}}, Ports: []corev1.EndpointPort{{Name: "http", Port: 80}}}}, //nolint:staticcheck // as above
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "fd::1 is imported", func(ctx context.Context) error {
		if err := controllers[1].Alive(); err != nil {
			return err
		}
		got, err := rotation(ctx, b, ns, "six")
		if err == nil && (len(got) != 1 || got[0] != "fd::1") {
			err = fmt.Errorf("it is served by %v", got)
		}
		return err
	})
}

func TestFaultRemovedSelectorLeavesSlices(t *testing.T) {
	a, b, ns, _ := pair(t)
	createService(t, a, ns, "web")
	old := addPod(t, a, ns, "web", "web-a")
	expectRotation(t, b, ns, "web", old)
	annotate(t, a, ns, "web", mode, "receiver")
	successor := addPod(t, b, ns, "web", "web-b")
	selectIn(t, b, ns, "web")
	for _, c := range []*cluster.Cluster{a, b} {
		expectRotation(t, c, ns, "web", successor)
	}
	all, err := slicesOf(t.Context(), a, ns, "web")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.Labels[discoveryv1.LabelManagedBy] == "endpointslice-controller.k8s.io" {
			t.Errorf("slice %s is left by Kubernetes, with %d endpoints that nobody keeps", s.Name, len(s.Endpoints))
		}
	}
}

// selectIn gives the Service its selector in a cluster, as the original's
// README has its users do once a migration is under way.
func selectIn(t testing.TB, c *cluster.Cluster, ns, service string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"selector":{"app":%q}}}`, service)
	if _, err := c.Client.CoreV1().Services(ns).Patch(t.Context(), service, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}
