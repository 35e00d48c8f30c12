package servicesync

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/xbernetes/xbernetes/test/lab/cluster"
	"github.com/xbernetes/xbernetes/test/lab/network"
)

// badPeers are peers that cannot be used: how each comes to be, and what is to
// be said of it, in the log and on the cluster's lease.
var badPeers = map[string]struct {
	make func(t *testing.T, c *controller, peer *cluster.Cluster)
	want []string // all of them, in the words for people
}{
	"no kubeconfig": {
		func(t *testing.T, c *controller, _ *cluster.Cluster) { writePeer(t, c, "once upon a time: [") },
		[]string{"gamma", "kubeconfig"},
	},
	"an empty file": {
		func(t *testing.T, c *controller, _ *cluster.Cluster) { writePeer(t, c, "") },
		[]string{"gamma", "kubeconfig"},
	},
	"expired credentials": {
		func(t *testing.T, c *controller, peer *cluster.Cluster) {
			if err := peer.WriteKubeconfig(filepath.Join(c.peers, peer.Name), peer.Config.Host, "was-good-once"); err != nil {
				t.Fatal(err)
			}
		},
		[]string{"gamma", "credentials", "expired"},
	},
	"missing rights": {
		func(t *testing.T, c *controller, peer *cluster.Cluster) {
			if err := peer.WriteKubeconfig(filepath.Join(c.peers, peer.Name), peer.Config.Host, cluster.GuestToken); err != nil {
				t.Fatal(err)
			}
		},
		[]string{"gamma", "denies a right", "guest"}, // whichever of the three kinds is answered first
	},
	"an old version": {
		func(t *testing.T, c *controller, peer *cluster.Cluster) { c.addPeer(t, peer, withoutGroup(t)) },
		[]string{"gamma", "does not serve"},
	},
	"nobody there": {
		func(t *testing.T, c *controller, peer *cluster.Cluster) {
			c.addPeer(t, peer, "https://"+network.FreeAddr("127.0.0.1"))
		},
		[]string{"gamma", "cannot be reached"},
	},
}

func writePeer(t *testing.T, c *controller, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(c.peers, "gamma"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// withoutGroup is the URL of an API server that knows nothing of service sync.
func withoutGroup(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, "404 page not found") // as an API server says it
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestBadPeers shows for each bad peer that what is wrong is said where people
// look, and that the good peer is followed as if nothing were.
func TestBadPeers(t *testing.T) {
	directOnly(t)
	for name, bad := range badPeers {
		t.Run(name, func(t *testing.T) {
			all := clusters(t)
			a, b, gamma := all[0], all[1], all[2]
			ns := namespaceIn(t, namespaceName(t), a, b)
			env := []string{"NSTOWATCH=" + ns}
			far, own := newController(t, a, env, nil), newController(t, b, env, nil)
			far.addPeer(t, b, b.Config.Host)
			own.addPeer(t, a, a.Config.Host)
			bad.make(t, own, gamma)
			far.start(t)
			own.start(t)
			createService(t, a, ns, "web")
			expectRotation(t, b, ns, "web", addPod(t, a, ns, "web", "web-0"))
			expectSaid(t, own, bad.want)
			expectOnLease(t, b, bad.want)
			caughtUp(t, ns, a, b)
		})
	}
}

// expectSaid waits until a line of the log has all the words.
func expectSaid(t *testing.T, c *controller, words []string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the log says %q", words), func(context.Context) error {
		for line := range strings.Lines(c.Printed(5000)) {
			if hasAll(line, words) {
				return nil
			}
		}
		return fmt.Errorf("it says:\n%s", c.Printed(10))
	})
}

var leases = schema.GroupVersionResource{Group: "servicesync.xbernetes.io", Version: "v1alpha1", Resource: "clusterleases"}

// expectOnLease waits until the status of the cluster's own lease has all the
// words, in what it says of one peer or in one condition.
func expectOnLease(t *testing.T, c *cluster.Cluster, words []string) {
	t.Helper()
	client, err := dynamic.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, fmt.Sprintf("the lease of %s says %q", c.Name, words), func(ctx context.Context) error {
		list, err := client.Resource(leases).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var seen []string
		for _, lease := range list.Items {
			if lease.GetName() != c.Name {
				continue
			}
			for _, field := range []string{"peers", "conditions"} {
				entries, _, err := unstructured.NestedSlice(lease.Object, "status", field)
				if err != nil {
					return err
				}
				for _, entry := range entries {
					seen = append(seen, fmt.Sprint(entry))
				}
			}
		}
		for _, entry := range seen {
			if hasAll(entry, words) {
				return nil
			}
		}
		return fmt.Errorf("it says %q", seen)
	})
}

func hasAll(text string, words []string) bool {
	for _, word := range words {
		if !strings.Contains(strings.ToLower(text), strings.ToLower(word)) {
			return false
		}
	}
	return true
}

// TestUnknownMode shows that an annotation with a value that nobody knows
// changes nothing, and is said on the Service and in the log.
func TestUnknownMode(t *testing.T) {
	a, b, ns, controllers := pair(t)
	createService(t, a, ns, "web")
	pod := addPod(t, a, ns, "web", "web-0")
	expectRotation(t, b, ns, "web", pod)
	annotate(t, a, ns, "web", mode, "sauce")
	expectEvent(t, a, ns, "web", "sauce", "source")
	expectSaid(t, controllers[0], []string{"sauce"})
	caughtUp(t, ns, a, b)
	for _, c := range []*cluster.Cluster{a, b} {
		expectRotation(t, c, ns, "web", pod)
	}
}

// expectEvent waits for an Event about the Service that has the words.
func expectEvent(t *testing.T, c *cluster.Cluster, ns, service string, words ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("an event of %s in %s says %q", service, c.Name, words), func(ctx context.Context) error {
		events, err := c.Client.CoreV1().Events(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var seen []string
		for _, e := range events.Items {
			if e.InvolvedObject.Name == service {
				seen = append(seen, e.Reason+": "+e.Message)
			}
		}
		for _, text := range seen {
			if hasAll(text, words) {
				return nil
			}
		}
		return fmt.Errorf("they say %q", seen)
	})
}

// TestOverlappingPodRanges shows that two clusters that give out the same
// addresses are told so.
func TestOverlappingPodRanges(t *testing.T) {
	directOnly(t)
	all := clusters(t)
	a, b := all[0], all[1]
	ns := namespaceIn(t, namespaceName(t), a, b)
	controllers := startAll(t, []string{"NSTOWATCH=" + ns}, []string{"--pod-ranges", cluster.PodRanges}, a, b)
	want := []string{cluster.PodRanges}
	expectSaid(t, controllers[1], append(want, a.Name))
	expectOnLease(t, b, want)
}

// TestMissingRightsAtHome shows that a right that the controller lacks in its
// own cluster is named.
func TestMissingRightsAtHome(t *testing.T) {
	directOnly(t)
	all := clusters(t)
	a, b := all[0], all[1]
	grantGuest(t, b,
		rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}},
		rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"*"}})
	ns := namespaceIn(t, namespaceName(t), a, b)
	env := []string{"NSTOWATCH=" + ns}
	far, own := newController(t, a, env, nil), newController(t, b, env, nil)
	far.addPeer(t, b, b.Config.Host)
	own.addPeer(t, a, a.Config.Host)
	own.asGuest(t)
	far.start(t)
	own.start(t)
	createService(t, a, ns, "web")
	for _, right := range []string{"services", "clusterleases"} {
		expectSaid(t, own, []string{"right", right})
	}
}

// grantGuest gives the guest of a cluster rights until the test ends.
func grantGuest(t *testing.T, c *cluster.Cluster, rules ...rbacv1.PolicyRule) {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: namespaceName(t)}, Rules: rules}
	if _, err := c.Client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: role.ObjectMeta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "guest"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Client.RbacV1().ClusterRoleBindings().Delete(context.Background(), role.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// asGuest has a controller work in its own cluster with the rights of the guest.
func (c *controller) asGuest(t *testing.T) {
	t.Helper()
	c.local = c.peers + ".own"
	if err := c.own.WriteKubeconfig(c.local, c.own.Config.Host, cluster.GuestToken); err != nil {
		t.Fatal(err)
	}
}

// TestOldDefinitions shows that an API server whose definitions lack a field, and
// may not be given others, does not silently leave it out of what is published.
func TestOldDefinitions(t *testing.T) {
	directOnly(t)
	b := clusters(t)[1]
	withoutField(t, b, "publishedservices.servicesync.xbernetes.io", "spec", "slices")
	grantGuest(t, b, rbacv1.PolicyRule{
		APIGroups: []string{"", "discovery.k8s.io", "servicesync.xbernetes.io", "multicluster.x-k8s.io", "coordination.k8s.io"},
		Resources: []string{"*"}, Verbs: []string{"*"},
	})
	ns := namespaceIn(t, namespaceName(t), b)
	own := newController(t, b, []string{"NSTOWATCH=" + ns}, nil)
	own.asGuest(t)
	own.start(t)
	createService(t, b, ns, "web")
	addPod(t, b, ns, "web", "web-0")
	expectSaid(t, own, []string{"CustomResourceDefinitions", "spec.slices", "crds.yaml"})
}

// withoutField takes a field out of a definition until the test ends.
func withoutField(t *testing.T, c *cluster.Cluster, definition string, path ...string) {
	t.Helper()
	client, err := dynamic.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	change := func(ctx context.Context, edit func(versions []any)) error {
		crd, err := crds.Get(ctx, definition, metav1.GetOptions{})
		if err != nil {
			return err
		}
		versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
		if err != nil {
			return err
		}
		edit(versions)
		if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
			return err
		}
		_, err = crds.Update(ctx, crd, metav1.UpdateOptions{})
		return err
	}
	var nested []string
	for _, field := range path {
		nested = append(nested, "properties", field)
	}
	nested = append([]string{"schema", "openAPIV3Schema"}, nested...)
	var field any
	if err := change(t.Context(), func(versions []any) {
		field, _, _ = unstructured.NestedFieldCopy(versions[0].(map[string]any), nested...)
		unstructured.RemoveNestedField(versions[0].(map[string]any), nested...)
	}); err != nil || field == nil {
		t.Fatalf("take %v out of %s: %v", path, definition, err)
	}
	t.Cleanup(func() {
		if err := change(context.Background(), func(versions []any) {
			if err := unstructured.SetNestedField(versions[0].(map[string]any), field, nested...); err != nil {
				t.Error(err)
			}
		}); err != nil {
			t.Error(err)
		}
	})
}
