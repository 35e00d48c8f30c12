// Package servers says which servers are registered, what is guarded of each, and
// what each of them holds: it lists, counts and deletes objects as the gateway
// itself. It never sends a user's request, and knows neither quotas nor ledgers.
package servers

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/canonical"
)

// Server is one registered server, and what the core server holds over it.
type Server struct {
	Name string
	// Guard says which of the core server's policies apply. If any of them does,
	// requests go to the server in their canonical form only, and writes of objects
	// need a caller whom the gateway knows.
	Guard v1alpha1.Guard
}

// Registry has the servers that are registered. All methods are safe for concurrent
// use and answer from memory.
type Registry interface {
	// For returns the server that requests for an API group go to; false if there
	// is none.
	For(group string) (Server, bool)
	// Claims says whether the gateway would send a server the requests for a group,
	// if the server served the group and no other server had it.
	Claims(server, group string) bool
	// Kind is what the server's discovery says of a resource. The error is one for
	// the caller: NotFound if discovery does not show it, and ServiceUnavailable
	// while discovery is not known.
	Kind(server string, resource schema.GroupVersionResource) (canonical.Kind, error)
	// Names are the names of all registered servers.
	Names() []string
	// Client is how the gateway speaks to the server as itself, not as a user. The
	// gateway's own user there must be allowed to get, list and delete what is
	// guarded. The config's Host is the base URL, with its path. It is an error if
	// there is no such server.
	Client(server string) (*rest.Config, *http.Client, error)
}
