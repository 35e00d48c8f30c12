package servers

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/internal/gateway/canonical"
)

// aServer is server A with a widget of group a in each namespace; the group can
// be in a vacant group, or missing from discovery and lists.
type aServer struct {
	*httptest.Server
	placed, missing, deleted, stale atomic.Bool
}

func newAServer(t *testing.T) *aServer {
	s := &aServer{}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *aServer) For(group string) (Server, bool) {
	return Server{Name: "A"}, group == "a" && s.placed.Load()
}
func (*aServer) Kind(_ string, gvr schema.GroupVersionResource) (canonical.Kind, error) {
	return canonical.Kind{}, apierrors.NewNotFound(gvr.GroupResource(), "")
}
func (s *aServer) Claims(_, group string) bool { return group == "a" }
func (s *aServer) Names() []string             { return []string{"A"} }
func (s *aServer) Client(string) (*rest.Config, *http.Client, error) {
	return &rest.Config{Host: s.URL}, s.Server.Client(), nil
}

func (s *aServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	version := metav1.GroupVersionForDiscovery{GroupVersion: "a/v1", Version: "v1"}
	var answer any
	switch {
	case r.URL.Path == "/api":
		answer = metav1.APIVersions{}
	case r.URL.Path == "/apis" && s.missing.Load():
		answer = metav1.APIGroupList{}
	case r.URL.Path == "/apis":
		list := metav1.APIGroupList{Groups: []metav1.APIGroup{{Name: "a", Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version}}}
		if s.stale.Load() {
			broken := metav1.GroupVersionForDiscovery{GroupVersion: "broken/v1", Version: "v1"}
			list.Groups = append(list.Groups, metav1.APIGroup{Name: "broken", Versions: []metav1.GroupVersionForDiscovery{broken}, PreferredVersion: broken})
		}
		answer = list
	case strings.HasPrefix(r.URL.Path, "/apis/broken"):
		w.WriteHeader(http.StatusServiceUnavailable)
		answer = metav1.Status{Status: metav1.StatusFailure, Code: 503, Reason: metav1.StatusReasonServiceUnavailable}
	case s.missing.Load():
		w.WriteHeader(http.StatusNotFound)
		answer = metav1.Status{Status: metav1.StatusFailure, Code: 404, Reason: metav1.StatusReasonNotFound}
	case r.URL.Path == "/apis/a/v1":
		answer = metav1.APIResourceList{GroupVersion: "a/v1", APIResources: []metav1.APIResource{
			{Name: "widgets", Kind: "Widget", Namespaced: true, Verbs: metav1.Verbs{"list", "delete", "deletecollection"}},
		}}
	default:
		s.deleted.CompareAndSwap(false, r.Method == http.MethodDelete)
		list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}}
		if !s.deleted.Load() {
			list.Items = []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "w"}}}
		}
		answer = list
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// TestWhatNobodyHoldsMayBeThere: a gateway or a server that has just started
// does not know whose a group is; that says nothing of the objects.
func TestWhatNobodyHoldsMayBeThere(t *testing.T) {
	known := map[string]string{"widgets.a": "v1"}
	s := newAServer(t)
	r := NewInventory(s)
	ask := func(what string, wantErr bool, wantEmpty bool) {
		t.Helper()
		holds, err := r.Holds(t.Context(), "A", "ns", known)
		if (err != nil) != wantErr || err == nil && holds == wantEmpty {
			t.Errorf("%s: holds %t, %v", what, holds, err)
		}
		empty, err := r.Empty(t.Context(), "A", "ns", known)
		if (err != nil) != wantErr || empty && wantErr {
			t.Errorf("%s: empty %t, %v", what, empty, err)
		}
	}
	ask("shown, and in a vacant group", true, false)
	s.missing.Store(true)
	ask("not shown, and in a vacant group", true, false)
	if s.deleted.Load() {
		t.Error("something was deleted before it was known whose it is")
	}
	s.missing.Store(false)
	s.placed.Store(true)
	s.stale.Store(true) // a group that is not sent there
	ask("in its place", false, false)
	if !s.deleted.Load() {
		t.Error("nothing was deleted of a namespace that is emptied")
	}
	ask("emptied", false, true)
}

// TestGoneIsGoneForAWhile: a kind is gone once its server has said so for long,
// and not if it has said so twice.
func TestGoneIsGoneForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewInventory(nil)
		kind := schema.GroupResource{Group: "a", Resource: "widgets"}
		var said strings.Builder
		for _, d := range []time.Duration{0, 20 * time.Second, 9 * time.Second, time.Second, 48 * time.Hour, 29 * time.Second, 5 * time.Second} {
			time.Sleep(d)
			if r.gone("A", kind, false) {
				said.WriteString("gone ")
			} else {
				said.WriteString("- ")
			}
		}
		if got, want := said.String(), "- - - gone - - gone "; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}
