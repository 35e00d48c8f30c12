package gateway

import (
	"strings"
	"testing"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
)

// TestSquatter: a server whose spec names no groups was there first, and serves
// what nobody holds yet: the project's own groups, groups of Kubernetes, and
// CRDs that the core server will have later. It gets none of them, and never a
// caller's token.
func TestSquatter(t *testing.T) {
	groups := []string{"later.example.com", "aggregation.xbernetes.io", "servicesync.xbernetes.io", "metrics.k8s.io", "apps"}
	squatter := newAPIServer(t, "squatter", groups...)
	core := newAPIServer(t, "core", "first.example.com")
	coreGroups := func(s *v1alpha1.RemoteAPIServerSpec) { s.Groups = []string{"*", "apps", "*.k8s.io", "*.xbernetes.io"} }
	silent := func(s *v1alpha1.RemoteAPIServerSpec) { s.Groups, s.Identity.Mode = nil, "" }
	f := start(t, newGiven(squatter.object(silent), core.object(coreGroups)))
	f.becomes("/apis/first.example.com/v1/things", 200, `"server":"core"`)
	f.becomes("/servers/squatter", 200, `"reason": "GroupsUnnamed"`)
	for _, g := range groups {
		if _, body := f.get("/apis/" + g + "/v1/things"); strings.Contains(body, "squatter") || strings.Contains(body, "Bearer alice") {
			t.Errorf("%s goes to a server that was not named for it: %s", g, body)
		}
	}
	core.serve(append(groups, "first.example.com")...)
	for _, g := range groups {
		f.becomes("/apis/"+g+"/v1/things", 200, `"server":"core"`)
	}
}
