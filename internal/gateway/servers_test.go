package gateway

import (
	"testing"

	"github.com/xbernetes/xbernetes/internal/gateway/discovery/ownership"
)

// TestWhatAServerClaims: with no word in its spec, nothing.
func TestWhatAServerClaims(t *testing.T) {
	r := &registry{}
	r.table.Store(&table{owned: ownership.Assign([]ownership.Claim{
		{Server: "silent"}, {Server: "named", Named: []string{"one.example.com"}}, {Server: "all", Named: []string{"*", "apps"}},
	}, nil)})
	for _, c := range []struct {
		server, group string
		want          bool
	}{
		{"silent", "one.example.com", false}, {"silent", "apps", false}, {"silent", "", false},
		{"named", "one.example.com", true}, {"named", "two.example.com", false},
		{"all", "", false}, {"all", "apps", true}, {"all", "one.example.com", false}, {"all", "two.example.com", true}, {"none", "one.example.com", false},
	} {
		if got := (policyView{r}).Claims(c.server, c.group); got != c.want {
			t.Errorf("%s claims %q: %t", c.server, c.group, got)
		}
	}
}
