package direct

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// endpoint is a gateway or a server. It counts requests, and keeps the credentials
// of the last one.
type endpoint struct {
	*httptest.Server
	name          string
	addresses     func() []metav1.ServerAddressByClientCIDR
	refuse        atomic.Bool // 401
	hits          atomic.Int64
	authorization atomic.Value
	path          atomic.Value
	body          atomic.Value
}

func newEndpoint(t *testing.T, name string, start func(http.Handler) *httptest.Server) *endpoint {
	e := &endpoint{name: name}
	e.Server = start(e)
	t.Cleanup(e.Close)
	return e
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/apis":
		json.NewEncoder(w).Encode(metav1.APIGroupList{Groups: []metav1.APIGroup{
			{Name: "own.example.com", ServerAddressByClientCIDRs: e.addresses()},
			{Name: "via.example.com"},
		}})
		return
	case "/api":
		json.NewEncoder(w).Encode(metav1.APIVersions{})
		return
	}
	e.hits.Add(1)
	e.authorization.Store(r.Header.Get("Authorization"))
	e.path.Store(r.URL.Path)
	body, _ := io.ReadAll(r.Body)
	e.body.Store(string(body))
	if e.refuse.Load() {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	fmt.Fprintf(w, `{"apiVersion":"own.example.com/v1","kind":"Thing","metadata":{"name":%q}}`, e.name)
}

func address(e *endpoint) string { return strings.TrimPrefix(e.URL, "https://") + "/base" }

type setup struct {
	gateway, server *endpoint
	config          *rest.Config
}

func newSetup(t *testing.T, change ...func(*Options)) *setup {
	s := &setup{gateway: newEndpoint(t, "gateway", httptest.NewServer), server: newEndpoint(t, "server", httptest.NewTLSServer)}
	s.gateway.addresses = func() []metav1.ServerAddressByClientCIDR {
		return []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: address(s.server)}}
	}
	opts := Options{Pause: time.Hour, Reach: Only(&rest.Config{BearerToken: "for-the-server", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, address(s.server))}
	for _, c := range change {
		c(&opts)
	}
	s.config = Config(&rest.Config{Host: s.gateway.URL, BearerToken: "for-the-gateway"}, opts)
	return s
}

func (s *setup) get(t *testing.T, group string) string {
	t.Helper()
	return s.do(t, group, func(c dynamic.ResourceInterface) (*unstructured.Unstructured, error) {
		return c.Get(t.Context(), "x", metav1.GetOptions{})
	})
}

func (s *setup) create(t *testing.T, group string) string {
	t.Helper()
	return s.do(t, group, func(c dynamic.ResourceInterface) (*unstructured.Unstructured, error) {
		return c.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{"apiVersion": group + "/v1", "kind": "Thing"}}, metav1.CreateOptions{})
	})
}

func (s *setup) do(t *testing.T, group string, f func(dynamic.ResourceInterface) (*unstructured.Unstructured, error)) string {
	t.Helper()
	client, err := dynamic.NewForConfig(s.config)
	if err != nil {
		t.Fatal(err)
	}
	obj, err := f(client.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "things"}))
	if err != nil {
		return err.Error()
	}
	return obj.GetName()
}

func TestGoesToTheServerItself(t *testing.T) {
	s := newSetup(t)
	if got := s.get(t, "own.example.com"); got != "server" {
		t.Fatalf("answered by %s", got)
	}
	if got := s.server.authorization.Load(); got != "Bearer for-the-server" {
		t.Errorf("the server was shown %q", got)
	}
	if got := s.server.path.Load(); got != "/base/apis/own.example.com/v1/things/x" {
		t.Errorf("the server was asked for %q", got)
	}
	if got := s.get(t, "via.example.com"); got != "gateway" || s.gateway.authorization.Load() != "Bearer for-the-gateway" {
		t.Errorf("a group without address was answered by %s", got)
	}
}

func TestGoesNowhereElse(t *testing.T) {
	stranger := newEndpoint(t, "stranger", httptest.NewTLSServer)
	s := newSetup(t)
	s.gateway.addresses = func() []metav1.ServerAddressByClientCIDR {
		return []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: address(stranger)}}
	}
	if got := s.get(t, "own.example.com"); got != "gateway" || stranger.hits.Load() != 0 {
		t.Errorf("answered by %s; the stranger was asked %d times", got, stranger.hits.Load())
	}
}

func TestFallsBack(t *testing.T) {
	t.Run("a server that is not there", func(t *testing.T) {
		s := newSetup(t)
		s.server.Close()
		if got := s.create(t, "own.example.com"); got != "gateway" || !strings.Contains(s.gateway.body.Load().(string), "Thing") {
			t.Errorf("answered by %s, with %q", got, s.gateway.body.Load())
		}
	})
	t.Run("a server that does not know the caller", func(t *testing.T) {
		s := newSetup(t)
		s.server.refuse.Store(true)
		if got := s.create(t, "own.example.com"); got != "gateway" || !strings.Contains(s.gateway.body.Load().(string), "Thing") {
			t.Errorf("answered by %s, with %q", got, s.gateway.body.Load())
		}
		s.server.refuse.Store(false)
		if got := s.get(t, "own.example.com"); got != "gateway" || s.server.hits.Load() != 1 {
			t.Errorf("answered by %s; a server that failed is to be left alone for a while", got)
		}
	})
	t.Run("a write that may have been carried out is not sent again", func(t *testing.T) {
		s := newSetup(t)
		s.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.server.hits.Add(1); panic(http.ErrAbortHandler) })
		if got := s.create(t, "own.example.com"); got == "gateway" || s.gateway.hits.Load() != 0 {
			t.Errorf("answered by %s", got)
		}
		if got := s.get(t, "own.example.com"); got != "gateway" {
			t.Errorf("a read: answered by %s", got)
		}
	})
}

func TestAddressFor(t *testing.T) {
	all := []metav1.ServerAddressByClientCIDR{
		{ClientCIDR: "0.0.0.0/0", ServerAddress: "public.example.com"}, {ClientCIDR: "10.0.0.0/8", ServerAddress: "private.example.com"},
		{ClientCIDR: "10.1.0.0/16", ServerAddress: "near.example.com"}, {ClientCIDR: "nonsense", ServerAddress: "x"},
	}
	for ip, want := range map[string]string{"": "public.example.com", "10.2.0.1": "private.example.com", "10.1.0.1": "near.example.com", "192.0.2.1": "public.example.com", "2001:db8::1": ""} {
		d := &directory{}
		if ip != "" {
			d.opts.ClientIP = netip.MustParseAddr(ip)
		}
		if got := d.choose(all); got != want {
			t.Errorf("%q is sent to %q; want %q", ip, got, want)
		}
	}
	if got := (&directory{}).choose([]metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: "user@evil.example.com"}}); got != "" {
		t.Errorf("an address that is none: %q", got)
	}
}

// Example goes straight to one server, as the same user as at the gateway, and
// through the gateway to all others.
func ExampleConfig() {
	gateway := &rest.Config{Host: "https://gateway.example.com", BearerToken: "…"}
	config := Config(gateway, Options{Reach: Only(gateway, "flunders.example.com:8443")})
	_, err := dynamic.NewForConfig(config)
	fmt.Println(err)
	// Output: <nil>
}

// TestWhatIsKnownIsNotChanged: addresses do not change once they are known, because
// other goroutines read them.
func TestWhatIsKnownIsNotChanged(t *testing.T) {
	d := &directory{}
	known := &addresses{of: map[string]string{"own.example.com": "server:443", "via.example.com": ""}}
	d.forget(known)
	if len(known.of) != 2 {
		t.Errorf("known is now %v", known.of)
	}
}

// TestAGroupWithoutAnAddressIsNotReached: Reach is not called without an address.
func TestAGroupWithoutAnAddressIsNotReached(t *testing.T) {
	var asked []string
	s := newSetup(t, func(o *Options) {
		o.Reach = func(group, address string) *rest.Config { asked = append(asked, group+" at "+address); return nil }
	})
	for _, group := range []string{"via.example.com", "own.example.com", "via.example.com"} {
		if got := s.get(t, group); got != "gateway" {
			t.Errorf("%s was answered by %s", group, got)
		}
	}
	if want := []string{"own.example.com at " + address(s.server)}; !slices.Equal(asked, want) {
		t.Errorf("asked for ways to %q, want %q", asked, want)
	}
}
