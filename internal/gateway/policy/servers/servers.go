// Package servers asks the registered servers, as the gateway itself, what they hold: it
// lists, counts and deletes objects. It never sends a user's request, and knows neither quotas
// nor ledgers.
package servers

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/canonical"
)

// Server is one registered server, with the policies that apply to it.
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
	// Kind returns a resource's kind, by the server's discovery. The error is meant for
	// the caller: NotFound if discovery does not show the resource, ServiceUnavailable
	// while discovery is not known.
	Kind(server string, resource schema.GroupVersionResource) (canonical.Kind, error)
	// Names returns the names of all registered servers.
	Names() []string
	// Client returns a client for the gateway's own requests to the server. The gateway's
	// user there must be allowed to get, list and delete the guarded objects. The config's
	// Host is the base URL, with its path. Client fails if there is no such server.
	Client(server string) (*rest.Config, *http.Client, error)
}
