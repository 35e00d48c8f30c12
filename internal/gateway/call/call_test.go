package call

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestOneCall: a request keeps the Call that it began with, and the credentials
// that it came with, whatever later handlers take off it.
func TestOneCall(t *testing.T) {
	var first *Call
	h := Start(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		first = Of(r)
		r = r.Clone(r.Context())
		r.Header.Del("Authorization")
		again, _ := Begin(r)
		if again != first || len(again.Credentials.Authorization) != 1 || !again.Credentials.HasToken() {
			t.Errorf("first %p, then %p: %+v", first, again, again.Credentials)
		}
	}))
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer x")
	h.ServeHTTP(httptest.NewRecorder(), r)
	if first == nil || Of(r) != nil {
		t.Errorf("the handler saw %v, and the request that came in has %v", first, Of(r))
	}
}
