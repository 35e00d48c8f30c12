package servicesync

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/xbernetes/xbernetes/test/lab/cluster"
)

// TestHostilePeer changes a peer's publications by hand. They then claim that the
// peer's Service web takes over the Service web of this cluster, and that the peer's
// Service api is a load balancer with annotations for other controllers. This
// cluster's web must stay as it is, and its replica of api must be a plain Service.
// docs/servicesync-threats.md lists further attacks.
func TestHostilePeer(t *testing.T) {
	all := clusters(t)
	here, evil := all[0], all[1]
	ns := namespaceIn(t, namespaceName(t), here, evil)
	var theirs *controller
	for _, own := range []*cluster.Cluster{here, evil} {
		c := newController(t, own, []string{"NSTOWATCH=" + ns}, nil)
		c.strict = own == here
		for _, peer := range []*cluster.Cluster{here, evil} {
			if peer != own {
				c.addPeer(t, peer, peer.Config.Host)
			}
		}
		c.start(t)
		theirs = c
	}
	createService(t, here, ns, "web")
	pod := addPod(t, here, ns, "web", "web-here")
	createService(t, evil, ns, "web")
	addPod(t, evil, ns, "web", "web-evil")
	createService(t, evil, ns, "api")
	first := addPod(t, evil, ns, "api", "api-evil")
	expectRotation(t, here, ns, "api", first)
	expectRotation(t, here, ns, "web", pod)
	caughtUp(t, ns, evil, here)
	before := get(t.Context(), t, here, ns, "web")

	theirs.Kill() // its publications stay, and are changed by hand
	p := publicationsOf(t, evil, ns)
	p.change("web", map[string]any{"replica": true, "mode": "source", "asked": true, "role": "source"})
	p.change("web", map[string]any{"replica": true, "mode": "union", "role": "union"})
	p.change("web", map[string]any{"handover": map[string]any{"turn": 1 << 40, "phase": "Committed", "heirs": []string{evil.Name}, "need": 1}})
	p.change("api", map[string]any{"template": map[string]any{
		"type": "LoadBalancer", "selector": map[string]any{"app": "web"},
		"labels":      map[string]any{"endpointslice.kubernetes.io/managed-by": "helm"},
		"annotations": map[string]any{"external-dns.alpha.kubernetes.io/hostname": "bank.example.com"},
		"ports":       []any{map[string]any{"name": "http", "protocol": "TCP", "port": 8080, "targetPort": cluster.Port}},
	}})
	// The new port is harmless and is carried over. Once it has arrived, this cluster
	// has seen all the changes above.
	expectService(t, here, ns, "api", func(s *corev1.Service) error {
		if s.Spec.Ports[0].Port != 8080 {
			return fmt.Errorf("its port is %d", s.Spec.Ports[0].Port)
		}
		return nil
	})
	api := get(t.Context(), t, here, ns, "api")
	if api.Spec.Type != corev1.ServiceTypeClusterIP || len(api.Spec.Selector) > 0 || len(api.Annotations) > 0 || api.Labels["endpointslice.kubernetes.io/managed-by"] != "" {
		t.Errorf("the replica of another's Service has the labels %v, the annotations %v, and is %+v", api.Labels, api.Annotations, api.Spec)
	}
	after := get(t.Context(), t, here, ns, "web")
	unchanged(t, "the Service of "+here.Name, before, after)
	expectRotation(t, here, ns, "web", pod)
}

// publications are those of a cluster's Services in one namespace.
type publications struct {
	*testing.T
	client dynamic.ResourceInterface
	names  map[string]string // of the objects, by Service
}

func publicationsOf(t *testing.T, c *cluster.Cluster, ns string) publications {
	t.Helper()
	in := c
	if throughStore() {
		in = world.clusters[2]
	}
	client, err := dynamic.NewForConfig(in.Config)
	if err != nil {
		t.Fatal(err)
	}
	kind := client.Resource(leases.GroupVersion().WithResource("publishedservices"))
	found, err := kind.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p := publications{T: t, names: make(map[string]string)}
	for _, o := range found.Items {
		spec := o.Object["spec"].(map[string]any)
		of := spec["service"].(map[string]any)
		if spec["cluster"] == c.Name && of["namespace"] == ns {
			p.client, p.names[of["name"].(string)] = kind.Namespace(o.GetNamespace()), o.GetName()
		}
	}
	if p.client == nil {
		t.Fatalf("%s publishes nothing", c.Name)
	}
	return p
}

// change changes fields of what is published of a Service.
func (p publications) change(service string, spec map[string]any) {
	p.Helper()
	patch, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		p.Fatal(err)
	}
	if _, err := p.client.Patch(context.Background(), p.names[service], types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		p.Fatal(err)
	}
}
