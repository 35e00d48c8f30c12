package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// fakeRegion answers what a route needs: its copy of the membership, and claims. What it
// answers differs by caller: without the token "known", it refuses.
type fakeRegion struct {
	*httptest.Server
	mu     sync.Mutex
	joined bool              // guarded by mu
	homes  map[string]string // of service clusters; guarded by mu
	asked  int               // requests since it was last looked at; guarded by mu
}

func (f *fakeRegion) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	w.Header().Set("Content-Type", "application/json")
	at, name := strings.Split(r.URL.Path, "/")[4], r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	if r.Header.Get("Authorization") != "Bearer known" {
		f.refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, at, name)
		return
	}
	if at == "memberships" && f.joined {
		m := &v1alpha1.Membership{Spec: v1alpha1.MembershipSpec{Epoch: 2, Members: []v1alpha1.Member{
			{Region: "ap", Since: 1, Active: true}, {Region: "eu", Since: 1, Active: true}, {Region: "us", Since: 1, Active: true}}}}
		f.answer(w, stored.MembershipName, &m.ObjectMeta, m)
		return
	}
	for cluster, home := range f.homes {
		key := stored.Key{Kind: string(ServiceCluster), Name: cluster}
		if at == "claims" && key.ClaimName() == name {
			c := &v1alpha1.Claim{Spec: v1alpha1.ClaimSpec{Key: v1alpha1.Key(key), Phase: "Held",
				Owner: v1alpha1.Stake{Operation: stored.OpID{Window: 1, Unique: "a"}.String(), Home: home, Attempt: 1, Epoch: 1}}}
			f.answer(w, name, &c.ObjectMeta, c)
			return
		}
	}
	f.refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, at, name)
}

func (f *fakeRegion) answer(w http.ResponseWriter, name string, meta *metav1.ObjectMeta, body any) {
	meta.Name, meta.ResourceVersion = name, "1"
	_ = json.NewEncoder(w).Encode(body)
}

func (f *fakeRegion) refuse(w http.ResponseWriter, code int32, reason metav1.StatusReason, resource, name string) {
	w.WriteHeader(int(code))
	_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: code, Reason: reason,
		Message: fmt.Sprintf("%s %q: %s", resource, name, reason), Details: &metav1.StatusDetails{Name: name, Group: v1alpha1.GroupName, Kind: resource}})
}

// set moves a service cluster to a region; "" for none.
func (f *fakeRegion) set(cluster, home string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.homes, cluster)
	if home != "" {
		f.homes[cluster] = home
	}
}

// took returns how many requests came since the last call.
func (f *fakeRegion) took() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.asked
	f.asked = 0
	return n
}

// fakes are three active regions, of which ap has the service cluster tokyo.
func fakes(t *testing.T) (map[string]*fakeRegion, *Regions) {
	all := map[string]*fakeRegion{}
	config := Config{Register: "eu", Regions: map[string]*rest.Config{}}
	for _, name := range everywhere {
		f := &fakeRegion{joined: true, homes: map[string]string{"tokyo": "ap"}}
		f.Server = httptest.NewServer(f)
		t.Cleanup(f.Close)
		all[name] = f
		config.Regions[name] = &rest.Config{Host: f.URL}
	}
	open, err := Open(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	return all, open
}

func TestAKnownRouteAsksNoRegion(t *testing.T) {
	all, open := fakes(t)
	known := open.As("known", nil)
	leads(t, known, "ap")
	for range 10 {
		leads(t, open.As("known", nil), "ap")
	}
	if n := all["ap"].took() + all["eu"].took() + all["us"].took(); n != 2 {
		t.Errorf("%d requests were made, want 2, both of the first question", n)
	}
}

func TestARouteIsToldToNoOtherCaller(t *testing.T) {
	_, open := fakes(t)
	leads(t, open.As("known", nil), "ap")
	for _, token := range []string{"other", ""} {
		if home, err := open.As(token, nil).Route(t.Context(), ServiceCluster, "tokyo"); !apierrors.IsForbidden(err) || home != "" {
			t.Errorf("%q is told %q, %v; want the region's 403", token, home, err)
		}
	}
}

func TestAWrongRouteHealsItself(t *testing.T) {
	all, open := fakes(t)
	known := open.As("known", nil)
	leads(t, known, "ap")
	for _, f := range all {
		f.set("tokyo", "us")
		f.took()
	}
	// What is learned less than a second ago is not asked for again, and so the table is
	// told that the answer is older.
	known.routes.Forget(known.routeKey(ServiceCluster, "tokyo"))
	leads(t, known, "us")
	for range 10 {
		known.Doubt(ServiceCluster, "tokyo", "us", false)
		leads(t, known, "us")
	}
	if n := all["ap"].took() + all["eu"].took() + all["us"].took(); n != 2 {
		t.Errorf("doubts led to %d requests, want 2", n)
	}
}

func TestARegionThatIsAwayIsPassedOver(t *testing.T) {
	all, open := fakes(t)
	known := open.As("known", nil)
	all["ap"].Close()
	leads(t, known, "ap") // its API is away, and still the way to tokyo
	known.Doubt(ServiceCluster, "tokyo", "ap", true)
	all["eu"].mu.Lock()
	all["eu"].joined = false
	all["eu"].mu.Unlock()
	known.routes.Forget(known.routeKey(ServiceCluster, "tokyo"))
	leads(t, known, "ap") // us says so
	all["eu"].Close()
	all["us"].Close()
	known.routes.Forget(known.routeKey(ServiceCluster, "tokyo"))
	if _, err := known.Route(t.Context(), ServiceCluster, "tokyo"); !errors.Is(err, ErrAway) {
		t.Errorf("without any region, the error is %v", err)
	}
}

func TestANameThatIsNowhereHasNoRoute(t *testing.T) {
	all, open := fakes(t)
	known := open.As("known", nil)
	for _, name := range []string{"osaka", "../tokyo", "", strings.Repeat("a", 64)} {
		if home, err := known.Route(t.Context(), ServiceCluster, name); err == nil {
			t.Errorf("%q leads to %q", name, home)
		}
	}
	if n := all["ap"].took(); n != 2 {
		t.Errorf("%d requests were made, want 2: for the one name that can be", n)
	}
}

func leads(t *testing.T, r *Regions, want string) {
	t.Helper()
	if home, err := r.Route(t.Context(), ServiceCluster, "tokyo"); err != nil || home != want {
		t.Errorf("tokyo leads to %q, %v; want %q", home, err, want)
	}
}
