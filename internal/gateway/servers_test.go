package gateway

import (
	"testing"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
)

// TestWhatAServerClaims: with no word in its spec, all but Kubernetes' own.
func TestWhatAServerClaims(t *testing.T) {
	entryOf := func(groups ...string) *entry {
		return &entry{server: &v1alpha1.RemoteAPIServer{Spec: v1alpha1.RemoteAPIServerSpec{Groups: groups}}}
	}
	r := &registry{}
	r.table.Store(&table{servers: map[string]*entry{"silent": entryOf(), "named": entryOf("one.example.com"), "all": entryOf("*")}})
	for _, c := range []struct {
		server, group string
		want          bool
	}{
		{"silent", "one.example.com", true}, {"silent", "apps", false}, {"silent", "", false},
		{"named", "one.example.com", true}, {"named", "two.example.com", false},
		{"all", "", true}, {"all", "two.example.com", true}, {"none", "one.example.com", false},
	} {
		if got := (guarded{r}).Claims(c.server, c.group); got != c.want {
			t.Errorf("%s claims %q: %t", c.server, c.group, got)
		}
	}
}
