package agent

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/yaml"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
)

// right is one that a role gives, as VERB RESOURCE.GROUP.
type right string

// rights notes which rights an agent's requests need. A right that none needs could be taken
// away; any other could not, because its request would be refused.
type rights struct {
	mu   sync.Mutex
	used sets.Set[right]
}

// note is a transport that notes what it sends.
func (r *rights) note(next http.RoundTripper) http.RoundTripper {
	kinds := request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	return roundTrip(func(req *http.Request) (*http.Response, error) {
		if info, err := kinds.NewRequestInfo(req); err == nil && info.IsResourceRequest {
			resource := info.Resource
			if info.Subresource != "" {
				resource += "/" + info.Subresource
			}
			if info.APIGroup == v1alpha1.CatalogGroupName {
				resource = "*"
			}
			r.mu.Lock()
			r.used.Insert(right(info.Verb + " " + resource + "." + info.APIGroup))
			r.mu.Unlock()
		}
		return next.RoundTrip(req)
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// minimal checks that the shipped roles of the agent give no right that no request has needed.
func (r *rights) minimal(t *testing.T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for granted := range granted(t) {
		verb, what, _ := strings.Cut(string(granted), " ")
		switch {
		case r.used.Has(granted):
		case verb == "bind":
			// It is no request of its own: the server asks for it when a RoleBinding is written by
			// somebody without the rights of its role, as the agent is.
		case granted == "patch events." && r.used.Has("create events."):
			// An Event that is repeated is patched; in this test none need be.
		case verb == "list" && r.used.Has(right("watch "+what)):
			// A watch begins with a list if the server does not send one as a stream.
		default:
			t.Errorf("deploy/region gives the agent the right to %s, which it has not needed", granted)
		}
	}
}

// granted are the rights that deploy/region gives an agent.
func granted(t *testing.T) sets.Set[right] {
	all := sets.New[right]()
	for _, file := range []string{"agent.yaml", "roles.yaml"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "region", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, doc := range strings.Split(string(text), "\n---\n") {
			var role rbacv1.ClusterRole // a Role has the same fields
			if err := yaml.Unmarshal([]byte(doc), &role); err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(role.Name, "xb-region-agent") {
				continue
			}
			for _, rule := range role.Rules {
				for _, group := range rule.APIGroups {
					for _, resource := range rule.Resources {
						for _, verb := range rule.Verbs {
							all.Insert(right(verb + " " + resource + "." + group))
						}
					}
				}
			}
		}
	}
	if len(all) < 20 {
		t.Fatalf("deploy/region gives only %v", all)
	}
	return all
}
