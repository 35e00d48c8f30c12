package servicesync

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/xbernetes/xbernetes/test/lab/cluster"
)

// patience is how long a test waits for what should come. With XB_ORIGINAL it
// is shorter: there, it does not come.
func patience() time.Duration {
	if os.Getenv("XB_ORIGINAL") != "" {
		return 10 * time.Second
	}
	return time.Minute
}

const mode = "vmware.com/syndicate-mode" // the annotation that migrates

// rotation is what kube-proxy sends to: the addresses of a Service that are
// ready, of all its slices.
func rotation(ctx context.Context, c *cluster.Cluster, ns, service string) ([]string, error) {
	endpoints, err := endpointsOf(ctx, c, ns, service)
	var ready []string
	for _, e := range endpoints {
		if e.Conditions.Ready == nil || *e.Conditions.Ready {
			ready = append(ready, e.Addresses...)
		}
	}
	slices.Sort(ready)
	return slices.Compact(ready), err
}

func slicesOf(ctx context.Context, c *cluster.Cluster, ns, service string) ([]discoveryv1.EndpointSlice, error) {
	list, err := c.Client.DiscoveryV1().EndpointSlices(ns).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

func endpointsOf(ctx context.Context, c *cluster.Cluster, ns, service string) ([]discoveryv1.Endpoint, error) {
	all, err := slicesOf(ctx, c, ns, service)
	var endpoints []discoveryv1.Endpoint
	for _, s := range all {
		endpoints = append(endpoints, s.Endpoints...)
	}
	return endpoints, err
}

// expectRotation waits until the Service is served by the pods and no others.
func expectRotation(t testing.TB, c *cluster.Cluster, ns, service string, pods ...*cluster.Pod) {
	t.Helper()
	want := make([]string, len(pods))
	for i, p := range pods {
		want[i] = p.IP
	}
	slices.Sort(want)
	eventually(t, fmt.Sprintf("%s/%s in %s is served by %v", ns, service, c.Name, want), func(ctx context.Context) error {
		got, err := rotation(ctx, c, ns, service)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("it is served by %v", got)
		}
		return err
	})
}

// get is the Service, or nil if there is none.
func get(ctx context.Context, t testing.TB, c *cluster.Cluster, ns, service string) *corev1.Service {
	t.Helper()
	s, err := c.Client.CoreV1().Services(ns).Get(ctx, service, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// expectService waits until the Service is there and as check wants it, and
// returns it.
func expectService(t testing.TB, c *cluster.Cluster, ns, service string, check func(*corev1.Service) error) (s *corev1.Service) {
	t.Helper()
	eventually(t, fmt.Sprintf("Service %s/%s in %s is as it should be", ns, service, c.Name), func(ctx context.Context) (err error) {
		if s, err = c.Client.CoreV1().Services(ns).Get(ctx, service, metav1.GetOptions{}); err != nil || check == nil {
			return err
		}
		return check(s)
	})
	return s
}

// expectGone waits until there is no such Service.
func expectGone(t testing.TB, c *cluster.Cluster, ns, service string) {
	t.Helper()
	eventually(t, fmt.Sprintf("Service %s/%s in %s is gone", ns, service, c.Name), func(ctx context.Context) error {
		_, err := c.Client.CoreV1().Services(ns).Get(ctx, service, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return errors.New("it is there")
	})
}

// annotate sets an annotation of a Service, or removes it where value is "".
func annotate(t testing.TB, c *cluster.Cluster, ns, service, key, value string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, key, value)
	if value == "" {
		patch = fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, key)
	}
	if _, err := c.Client.CoreV1().Services(ns).Patch(t.Context(), service, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// addPod starts a pod with the label app=APP.
func addPod(t testing.TB, c *cluster.Cluster, ns, app, name string) *cluster.Pod {
	t.Helper()
	p, err := c.AddPod(t.Context(), ns, name, map[string]string{"app": app})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// caughtUp waits until what was done before at one cluster has come to the
// other: a Service that is made there now is imported here. It happens twice,
// so that what the first found being worked on is done, too.
func caughtUp(t testing.TB, ns string, from, to *cluster.Cluster) {
	t.Helper()
	for range 2 {
		canary := fmt.Sprintf("canary-%d", time.Now().UnixNano())
		createService(t, from, ns, canary)
		eventually(t, to.Name+" has caught up with "+from.Name, func(ctx context.Context) error {
			_, err := to.Client.CoreV1().Services(ns).Get(ctx, canary, metav1.GetOptions{})
			return err
		})
	}
}

// unchanged fails the test unless an object is what it was, to the byte.
func unchanged(t testing.TB, what string, before, after any) {
	t.Helper()
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("%s has changed (-before +after):\n%s", what, diff)
	}
}
