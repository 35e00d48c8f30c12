package backend

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
)

// BenchmarkHandler is the cost of a request between a caller and a server that
// are only there in name, beside that of the bare reverse proxy.
func BenchmarkHandler(b *testing.B) {
	answer := roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: 2,
			Body: io.NopCloser(&fixed{"{}"}), Request: r,
		}, nil
	})
	serve := func(b *testing.B, h http.Handler) {
		for b.Loop() {
			r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, widgets+"/a", nil)
			r.Header.Set("Accept", "application/json")
			r.Header.Set("Authorization", "Bearer alices")
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
	}
	b.Run("bare", func(b *testing.B) {
		proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "https", Host: "a"})
		proxy.Transport = answer
		serve(b, proxy)
	})
	for _, mode := range modes {
		b.Run(string(mode), func(b *testing.B) {
			s, err := New("widgets", v1alpha1.RemoteAPIServerSpec{URL: "https://a", Identity: v1alpha1.Identity{Mode: mode}}, clientCredentials(b, "gateways-own"), Options{})
			if err != nil {
				b.Fatal(err)
			}
			s.connections.plain.traced = answer
			s.connections.asGateway(s.credentials.Current())
			s.connections.own.traced = answer
			serve(b, begun(b, s, alice))
		})
	}
}

// fixed reads as a string, once.
type fixed struct{ s string }

func (f *fixed) Read(p []byte) (int, error) {
	if f.s == "" {
		return 0, io.EOF
	}
	n := copy(p, f.s)
	f.s = f.s[n:]
	return n, nil
}

// BenchmarkHTTP is a request over TLS and HTTP/2 to a server in this process,
// directly and through the gateway.
func BenchmarkHTTP(b *testing.B) {
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, `{"kind":"Widget"}`) }))
	api.EnableHTTP2 = true
	api.StartTLS()
	defer api.Close()
	s, err := New("widgets", specOf(v1alpha1.PassThrough, api), nil, Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.connections.close()
	gw := httptest.NewUnstartedServer(begun(b, s, nil))
	gw.EnableHTTP2 = true
	gw.StartTLS()
	defer gw.Close()
	for name, to := range map[string]*httptest.Server{"direct": api, "gateway": gw} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				resp, err := to.Client().Get(to.URL + widgets + "/a")
				if err != nil {
					b.Fatal(err)
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
}
