package servicesync

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	mcsclient "sigs.k8s.io/mcs-api/pkg/client/clientset/versioned"

	"github.com/xbernetes/xbernetes/test/lab/cluster"
)

func exports(t testing.TB, c *cluster.Cluster) mcsclient.Interface {
	t.Helper()
	client, err := mcsclient.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func export(t testing.TB, c *cluster.Cluster, ns, service string) {
	t.Helper()
	_, err := exports(t, c).MulticlusterV1beta1().ServiceExports(ns).Create(t.Context(), &mcs.ServiceExport{ObjectMeta: metav1.ObjectMeta{Name: service}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func unexport(t testing.TB, c *cluster.Cluster, ns, service string) {
	t.Helper()
	if err := exports(t, c).MulticlusterV1beta1().ServiceExports(ns).Delete(t.Context(), service, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestClustersetName calls an exported Service by its name in the cluster set:
// from one cluster, then from both, then from the other.
func TestClustersetName(t *testing.T) {
	a, b := nodes(t)
	ns := namespaceIn(t, namespaceName(t), a, b)
	for _, c := range []*cluster.Cluster{a, b} { // one that both have, before either hears of the other's
		createService(t, c, ns, "native")
	}
	startAll(t, []string{"NSTOWATCH=" + ns}, nil, a, b)
	createService(t, a, ns, "web")
	addPod(t, a, ns, "web", "web-a")
	export(t, a, ns, "web")
	ctx := within(t, 2*patience())
	name := "web." + ns + ".svc.clusterset.local"
	for _, c := range []*cluster.Cluster{a, b} {
		expectAnswer(ctx, t, c, name, "web-a")
	}
	addPod(t, b, ns, "native", "native-b")
	export(t, b, ns, "native")
	expectAnswer(ctx, t, a, "native."+ns+".svc.clusterset.local", "native-b")
	addPod(t, a, ns, "native", "native-a")
	export(t, a, ns, "native")
	for _, c := range []*cluster.Cluster{a, b} {
		for _, pod := range []string{"native-a", "native-b"} {
			expectAnswer(ctx, t, c, "native."+ns+".svc.clusterset.local", pod)
		}
	}
	unexport(t, b, ns, "native")
	eventually(t, "only a answers", func(ctx context.Context) error {
		caller, err := b.NewCaller("native."+ns+".svc.clusterset.local", 80)
		if err != nil {
			return err
		}
		for range 20 {
			if pod, err := caller.Get(ctx); err != nil {
				return err
			} else if pod != "native-a" {
				return fmt.Errorf("%s answers", pod)
			}
		}
		return nil
	})
	got, err := exports(t, a).MulticlusterV1beta1().ServiceExports(ns).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !meta.IsStatusConditionTrue(got.Status.Conditions, string(mcs.ServiceExportConditionValid)) {
		t.Errorf("the export's conditions are %v", got.Status.Conditions)
	}
}
