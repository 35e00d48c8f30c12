package controlplane

import (
	"encoding/json"
	"net/http"
	"net/http/httptrace"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/internal/controlplane/roster"
	"github.com/xbernetes/xbernetes/internal/pki"
)

// TestRemovedServer: when a server is removed from the roster, the clients that it gave
// certificates to are refused, also on connections that they have open.
func TestRemovedServer(t *testing.T) {
	url := testEtcd(t, "127.0.0.1:0")
	s := startTest(t, childSettings{Addresses: []string{url}})
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{url}})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	dir := t.TempDir()
	ca, err := pki.Authority(dir, "ca", "another server")
	if err != nil {
		t.Fatal(err)
	}
	admin, err := ca.Issue(dir, "admin", pki.Leaf{Name: "their admin", Groups: []string{"system:masters"}})
	if err != nil {
		t.Fatal(err)
	}
	entry, err := json.Marshal(roster.Member{CA: ca.CertPEM})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.Put(t.Context(), roster.Prefix+"another", string(entry)); err != nil {
		t.Fatal(err)
	}

	config := rest.AnonymousClientConfig(s.config)
	config.CertData, config.KeyData = admin.CertPEM, admin.KeyPEM
	reused := false // whether the last request came by a connection that was open
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			trace := &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { reused = c.Reused }}
			return next.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
		})
	})
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ask := func() error {
		_, err := client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
		return err
	}
	until := func(what string, ok func(error) bool) {
		t.Helper()
		err := ask()
		for end := time.Now().Add(startTimeout); !ok(err); err = ask() {
			if time.Now().After(end) {
				t.Fatalf("%s: never; the last answer is %v", what, err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	until("the other server's client is known", func(err error) bool { return err == nil })
	if err := ask(); err != nil || !reused {
		t.Fatalf("the next request: %v, on an open connection: %v", err, reused)
	}
	if _, err := etcd.Delete(t.Context(), roster.Prefix+"another"); err != nil {
		t.Fatal(err)
	}
	until("it is refused", apierrors.IsUnauthorized)
	if !reused {
		t.Error("the refusal came on a new connection")
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
