package servicesync

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/xbernetes/xbernetes/test/lab/cluster"
	"github.com/xbernetes/xbernetes/test/lab/wait"
)

// TestDataPath shows that the lab's path is what the other tests take it for:
// a Service answers by its name, from the pods of its own cluster and from
// those of another whose slice was written by hand, and a caller notices when
// the last endpoint is gone.
func TestDataPath(t *testing.T) {
	a, b := nodes(t)
	ctx := within(t, 5*time.Minute)
	ns := namespaceIn(t, namespaceName(t), a, b)
	for _, name := range []string{"web", "remote"} {
		createService(t, a, ns, name)
	}
	near, err := a.AddPod(ctx, ns, "web-a", map[string]string{"app": "web"})
	if err != nil {
		t.Fatal(err)
	}
	far, err := b.AddPod(ctx, ns, "web-b", map[string]string{"app": "web"})
	if err != nil {
		t.Fatal(err)
	}
	expectAnswer(ctx, t, a, "web."+ns+".svc.cluster.local", "web-a")
	if sends, err := a.SendsTo(ctx, near); !sends || err != nil {
		t.Errorf("web-a answers, and no rule of kube-proxy names it (%v): nobody could see it drain", err)
	}

	port, name, ready := int32(cluster.Port), "http", true
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "remote-by-hand", Labels: map[string]string{
			discoveryv1.LabelServiceName: "remote", discoveryv1.LabelManagedBy: "lab",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{far.IP}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
	}
	if _, err := a.Client.DiscoveryV1().EndpointSlices(ns).Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expectAnswer(ctx, t, a, "remote."+ns+".svc.cluster.local", "web-b")

	caller, err := a.NewCaller("remote."+ns+".svc.cluster.local", 80)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Client.DiscoveryV1().EndpointSlices(ns).Delete(ctx, slice.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := wait.Until(ctx, "a call fails", func(ctx context.Context) error {
		if pod, err := caller.Get(ctx); err == nil {
			return fmt.Errorf("%s still answers", pod)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// createService makes a Service whose selector is app=NAME, with port 80 to
// the pods'.
func createService(t testing.TB, c *cluster.Cluster, ns, name string) *corev1.Service {
	t.Helper()
	service, err := c.Client.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": name},
			Ports:    []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(cluster.Port)}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return service
}

// expectAnswer calls until the pod answers.
func expectAnswer(ctx context.Context, t testing.TB, from *cluster.Cluster, name, pod string) {
	t.Helper()
	caller, err := from.NewCaller(name, 80)
	if err != nil {
		t.Fatal(err)
	}
	if err := wait.Until(ctx, pod+" answers for "+name, func(ctx context.Context) error {
		got, err := caller.Get(ctx)
		if err == nil && got != pod {
			err = fmt.Errorf("%q answers", got)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
