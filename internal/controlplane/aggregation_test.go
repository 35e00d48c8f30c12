package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/xbernetes/xbernetes/internal/controlplane/aggregation"
	"github.com/xbernetes/xbernetes/internal/pki"
)

// backend is another API server, with one namespaced kind.
type backend struct {
	*httptest.Server
	ca []byte

	mu      sync.Mutex
	callers []string // of its kind, by name
	tokens  int      // requests with a credential of their own
}

func newBackend(t *testing.T) *backend {
	t.Helper()
	dir := t.TempDir()
	ca, err := pki.Authority(dir, "ca", "backend-ca")
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := ca.Issue(dir, "serving", pki.Leaf{Name: "backend", Server: true, SANs: []string{"things.elsewhere.svc"}})
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(leaf.CertPEM, leaf.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	b := &backend{ca: ca.CertPEM}
	b.Server = httptest.NewUnstartedServer(b)
	b.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAnyClientCert}
	b.StartTLS()
	t.Cleanup(b.Close)
	return b
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := any(metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "elsewhere.test/v1",
		APIResources: []metav1.APIResource{{Name: "things", SingularName: "thing", Namespaced: true, Kind: "Thing", Verbs: metav1.Verbs{"list", "delete", "deletecollection"}}},
	})
	switch {
	case strings.HasSuffix(r.URL.Path, "/things"):
		b.mu.Lock()
		b.callers = append(b.callers, r.Header.Get("X-Remote-User"))
		if r.Header.Get("Authorization") != "" {
			b.tokens++
		}
		b.mu.Unlock()
		answer = map[string]any{"kind": "ThingList", "apiVersion": "elsewhere.test/v1", "metadata": map[string]any{"resourceVersion": "1"}, "items": []any{}}
	case r.URL.Path != "/apis/elsewhere.test/v1":
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// apiService registers elsewhere.test/v1 at s, with an address unless it is empty.
func apiService(t *testing.T, s *server, address string, ca []byte) {
	t.Helper()
	metadata := map[string]any{"name": "v1.elsewhere.test"}
	if address != "" {
		metadata["annotations"] = map[string]any{aggregation.AddressAnnotation: address}
	}
	spec := map[string]any{
		"group": "elsewhere.test", "version": "v1", "groupPriorityMinimum": int64(100), "versionPriority": int64(100),
		"service": map[string]any{"namespace": "elsewhere", "name": "things", "port": int64(443)},
	}
	if ca != nil {
		spec["caBundle"] = ca64(ca)
	} else {
		spec["insecureSkipTLSVerify"] = true
	}
	_, err := s.dynamic.Resource(apiServices).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": metadata, "spec": spec,
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func ca64(pem []byte) string {
	data, err := json.Marshal(pem) // as []byte is: base64, in quotes
	if err != nil {
		panic(err)
	}
	return strings.Trim(string(data), `"`)
}

// awaitAvailable waits for the condition, and returns its message.
func awaitAvailable(t *testing.T, s *server, status, reason string) (message string) {
	t.Helper()
	until(t, "the APIService is Available="+status+" for "+reason, func(ctx context.Context) (bool, error) {
		o, err := s.dynamic.Resource(apiServices).Get(ctx, "v1.elsewhere.test", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
		for _, c := range conditions {
			c := c.(map[string]any)
			if c["type"] == "Available" && c["status"] == status && c["reason"] == reason {
				message = c["message"].(string)
				return true, nil
			}
		}
		return false, err
	})
	return message
}

func deleteNamespace(t *testing.T, s *server, name string) {
	t.Helper()
	if err := s.client.CoreV1().Namespaces().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the namespace is gone", func(ctx context.Context) (bool, error) {
		_, err := s.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
}

// An APIService says whether its server answers, and what to do if it does not.
// With an address its kinds are served; without one it holds nothing up.
func TestAggregation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	etcd, url, err := startEtcd(dir, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Close)
	s := startTest(t, childSettings{Addresses: []string{url}, ServerID: "aggregating", LeaderElection: fast})

	apiService(t, s, "", nil)
	if said := awaitAvailable(t, s, "False", "NoAddress"); !strings.Contains(said, aggregation.AddressAnnotation) {
		t.Errorf("without an address the condition says: %s", said)
	}
	deleteNamespace(t, s, namespace(t, s))
	forget := func() {
		if err := s.dynamic.Resource(apiServices).Delete(t.Context(), "v1.elsewhere.test", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	forget()

	b := newBackend(t)
	if pool := x509.NewCertPool(); !pool.AppendCertsFromPEM(b.ca) {
		t.Fatal("the backend's CA is none")
	}
	apiService(t, s, b.URL, b.ca)
	awaitAvailable(t, s, "True", "Passed")
	ns := namespace(t, s)
	things := schema.GroupVersionResource{Group: "elsewhere.test", Version: "v1", Resource: "things"}
	until(t, "the aggregated kind is served", func(ctx context.Context) (bool, error) {
		_, err := s.dynamic.Resource(things).Namespace(ns).List(ctx, metav1.ListOptions{})
		return err == nil, nil
	})
	b.mu.Lock()
	if len(b.callers) == 0 || b.callers[0] == "" || b.tokens > 0 {
		t.Errorf("the server was asked as %q, %d times with a credential", b.callers, b.tokens)
	}
	b.mu.Unlock()
	deleteNamespace(t, s, ns)

	ns = namespace(t, s)
	b.Close()
	if said := awaitAvailable(t, s, "False", "FailedDiscoveryCheck"); !strings.Contains(said, b.URL) || !strings.Contains(said, "refused") {
		t.Errorf("with a server that is gone the condition says: %s", said)
	}
	// As in any cluster: objects that the server may have in the namespace cannot be deleted.
	if err := s.client.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the namespace says what holds it", func(ctx context.Context) (bool, error) {
		o, err := s.client.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, c := range o.Status.Conditions {
			if strings.Contains(c.Message, "v1.elsewhere.test") && strings.Contains(c.Message, "FailedDiscoveryCheck") {
				return true, nil
			}
		}
		return false, nil
	})
	forget()
	until(t, "the namespace is gone", func(ctx context.Context) (bool, error) {
		_, err := s.client.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
}
