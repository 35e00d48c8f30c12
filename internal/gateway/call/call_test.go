package call

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// TestOneCall: a request keeps the Call that it began with, and the credentials
// that it came with, whatever later handlers take off it.
func TestOneCall(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/apis/a/v1/namespaces/x/widgets/y", nil)
	r.Header.Set("Authorization", "Bearer x")
	begun, err := Begin(r)
	if err != nil {
		t.Fatal(err)
	}
	first := Of(begun)
	later := begun.Clone(begun.Context())
	later.Header.Del("Authorization")
	if again := Of(later); again != first || len(again.Credentials.Authorization) != 1 || !again.Credentials.HasToken() {
		t.Errorf("first %p, then %p: %+v", first, again, again.Credentials)
	}
	if info, _ := request.RequestInfoFrom(later.Context()); info != first.Info || info.Verb != "get" || info.Resource != "widgets" || info.Name != "y" {
		t.Errorf("Kubernetes' filters read %+v, and the gateway %+v", info, first.Info)
	}
}

// TestNoCallWithoutBeginning: a handler never takes a request that has not begun for
// one without a server, which no policy is held over.
func TestNoCallWithoutBeginning(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a request has a Call without a beginning")
		}
	}()
	Of(httptest.NewRequest(http.MethodGet, "/", nil))
}
