package backend

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
)

// TestOwnTakesNoFloods: what a server answers to the gateway itself, as an
// answer, an error or an event of a watch, is refused before the part is read
// that makes it too heavy to decode; and what is not JSON is refused at once.
func TestOwnTakesNoFloods(t *testing.T) {
	const chunk = 1 << 20
	flood := strings.Repeat("{},", chunk/3)
	var accepted string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		accepted = r.Header.Get("Accept")
		kind := "application/json"
		if as := r.URL.Query().Get("as"); as != "" {
			kind = as
		}
		w.Header().Set("Content-Type", kind)
		if strings.Contains(r.URL.Path, "fails") {
			w.WriteHeader(http.StatusConflict)
		}
		io.WriteString(w, `{"items":[`)
		for range 40 {
			if _, err := io.WriteString(w, flood); err != nil {
				return
			}
		}
	}))
	t.Cleanup(api.Close)
	b := newBackend(t, v1alpha1.RemoteAPIServerSpec{URL: api.URL, Identity: v1alpha1.Identity{Mode: v1alpha1.PassThrough}}, nil, Options{})
	for path, want := range map[string]string{
		"/apis":                                                "once it is decoded",
		"/apis/g/v1/namespaces/n/things":                       "once it is decoded",
		"/apis/g/v1/namespaces/n/things/fails":                 "once it is decoded",
		"/apis/g/v1/things?watch=true":                         "once it is decoded",
		"/openapi/v3?as=text/plain":                            "once it is decoded",
		"/apis?as=application/vnd.kubernetes.protobuf":         "application/vnd.kubernetes.protobuf",
		"/apis/g/v1/things?watch=true&as=application/cbor-seq": "JSON was asked for",
		"/apis/g/v1/things?as=application/yaml":                "JSON was asked for",
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "application/vnd.kubernetes.protobuf;as=Table, application/json;as=Table;v=v1,application/cbor")
		var got int64
		resp, err := b.Own().RoundTrip(r)
		if err == nil {
			got, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || got > chunk {
			t.Errorf("%s: %d bytes, and the error is %v; want one that says %q", path, got, err, want)
		}
		if accepted != "application/json;as=Table;v=v1" {
			t.Errorf("%s: the gateway accepts %q", path, accepted)
		}
	}
}

// TestOwnAcceptsNoBinary: encodings whose weight cannot be told are not asked for.
// What the gateway does not know goes to the server as it is: the server must be
// able to refuse it.
func TestOwnAcceptsNoBinary(t *testing.T) {
	for accept, want := range map[string]string{
		"":                                    "application/json",
		"application/cbor":                    "application/json",
		"application/yaml":                    "application/json",
		"application/x-unknown":               "application/x-unknown",
		"application/json, */*":               "application/json,*/*",
		"application/cbor, text/plain;q=0.5,": "text/plain;q=0.5",
	} {
		if got := onlyJSON(accept); got != want {
			t.Errorf("of %q is left %q, want %q", accept, got, want)
		}
	}
}
