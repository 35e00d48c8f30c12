package regiontest

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// Known is the token that a Fake takes; all others it refuses.
const Known = "known"

// Fake is a region in memory, of the members ap, eu and us, that answers reads of service
// clusters' names and nothing else. Other requests are for Else.
type Fake struct {
	*httptest.Server
	Else http.Handler // nil: they are not found

	mu     sync.Mutex
	joined bool              // guarded by mu
	homes  map[string]string // of service clusters; guarded by mu
	asked  int               // requests since Took; guarded by mu
}

// Fakes starts ap, eu and us, which know the service cluster tokyo, of ap.
func Fakes(t *testing.T) map[string]*Fake {
	all := map[string]*Fake{}
	for _, name := range []string{"ap", "eu", "us"} {
		f := &Fake{joined: true, homes: map[string]string{"tokyo": "ap"}}
		f.Server = httptest.NewUnstartedServer(f)
		f.Config.ErrorLog = log.New(io.Discard, "", 0)
		f.StartTLS()
		t.Cleanup(f.Close)
		all[name] = f
	}
	return all
}

// Reach is how clients reach the region.
func (f *Fake) Reach() *rest.Config {
	return &rest.Config{Host: f.URL, TLSClientConfig: rest.TLSClientConfig{CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw})}}
}

// ServeHTTP implements http.Handler.
func (f *Fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.asked++
	f.mu.Unlock()
	rest, ok := strings.CutPrefix(r.URL.Path, "/apis/"+v1alpha1.GroupName+"/v1alpha1/")
	resource, name, _ := strings.Cut(rest, "/")
	switch {
	case r.Header.Get("Authorization") != "Bearer "+Known:
		f.refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, resource, name)
	case ok:
		f.read(w, resource, name)
	case f.Else != nil:
		f.Else.ServeHTTP(w, r)
	default:
		f.refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, resource, name)
	}
}

func (f *Fake) read(w http.ResponseWriter, resource, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if resource == "memberships" && f.joined {
		m := &v1alpha1.Membership{Spec: v1alpha1.MembershipSpec{Epoch: 2, Members: []v1alpha1.Member{
			{Region: "ap", Since: 1, Active: true}, {Region: "eu", Since: 1, Active: true}, {Region: "us", Since: 1, Active: true}}}}
		f.answer(w, stored.MembershipName, &m.ObjectMeta, m)
		return
	}
	list := &v1alpha1.ClaimList{Items: []v1alpha1.Claim{}}
	for cluster, home := range f.homes {
		key := stored.Key{Kind: "ServiceCluster", Name: cluster}
		c := v1alpha1.Claim{ObjectMeta: metav1.ObjectMeta{Name: key.ClaimName(), ResourceVersion: "1"}, Spec: v1alpha1.ClaimSpec{Key: v1alpha1.Key(key), Phase: "Held",
			Owner: v1alpha1.Stake{Operation: stored.OpID{Window: 1, Unique: "in" + home}.String(), Home: home, Attempt: 1, Epoch: 1}}}
		if resource == "claims" && key.ClaimName() == name {
			f.answer(w, name, &c.ObjectMeta, &c)
			return
		}
		list.Items = append(list.Items, c)
	}
	if resource == "claims" && name == "" {
		f.answer(w, "", &metav1.ObjectMeta{}, list)
		return
	}
	f.refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, resource, name)
}

func (f *Fake) answer(w http.ResponseWriter, name string, meta *metav1.ObjectMeta, body any) {
	meta.Name, meta.ResourceVersion = name, "1"
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body) // a caller that is gone
}

func (f *Fake) refuse(w http.ResponseWriter, code int32, reason metav1.StatusReason, resource, name string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(code))
	_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: code, Reason: reason,
		Message: fmt.Sprintf("%s %q: %s", resource, name, reason), Details: &metav1.StatusDetails{Name: name, Group: v1alpha1.GroupName, Kind: resource}})
}

// Move tells the region that a service cluster was deleted, and created with another home;
// "": only deleted.
func (f *Fake) Move(cluster, home string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.homes[cluster] = home; home == "" {
		delete(f.homes, cluster)
	}
}

// Leave makes the region a member no more.
func (f *Fake) Leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.joined = false
}

// Took returns how many requests came since the last call.
func (f *Fake) Took() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.asked
	f.asked = 0
	return n
}
