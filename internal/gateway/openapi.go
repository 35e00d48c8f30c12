package gateway

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/xbernetes/xbernetes/internal/gateway/discovery"
)

// openAPIv3Prefix begins the paths of OpenAPI v3 documents.
const openAPIv3Prefix = "/openapi/v3/"

// documentOwner returns the server whose OpenAPI v3 document is at a path, or nil.
func (t *router) documentOwner(path string) *entry {
	table := t.registry.table.Load()
	name, ok := discovery.PathOwner(strings.TrimPrefix(path, openAPIv3Prefix), table.owned.Holder)
	if !ok {
		return nil
	}
	return table.servers[name]
}

// openAPIv3 forwards to the server that has a document. It leaves out the hash in the URL,
// because a server whose document has just changed would answer it with a redirect.
func (t *router) openAPIv3(w http.ResponseWriter, r *http.Request, e *entry) {
	if e == nil {
		discovery.NotFound(w, r)
		return
	}
	out := r.Clone(r.Context())
	out.URL = &url.URL{Path: strings.TrimSuffix(cmp.Or(e.server.Spec.OpenAPIPath, "/openapi"), "/") + "/v3/" + strings.TrimPrefix(r.URL.Path, openAPIv3Prefix)}
	t.forward(w, out, e)
}

// openAPIv2Timeout is how long the first request for OpenAPI v2 waits for servers
// that have not been asked for theirs.
const openAPIv2Timeout = 3 * time.Second

// openAPIv2 answers with the merged OpenAPI v2 of all servers. The gateway asks
// servers for it only once somebody wants it.
func (t *router) openAPIv2(w http.ResponseWriter, r *http.Request) {
	if t.index.WantOpenAPIV2() {
		for _, e := range t.registry.table.Load().servers {
			e.member.kick()
		}
	}
	timeout := time.NewTimer(openAPIv2Timeout)
	defer timeout.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !t.registry.hasOpenAPIv2() {
		select {
		case <-tick.C:
			continue
		case <-timeout.C:
		case <-r.Context().Done():
		}
		break
	}
	t.discovery.ServeHTTP(w, r)
}
