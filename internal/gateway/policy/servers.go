package policy

import (
	"context"
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

// serverKey is where a request's context has the server that it goes to.
type serverKey struct{}

// WithServer says which server the request of a context goes to.
func WithServer(ctx context.Context, s Server) context.Context {
	return context.WithValue(ctx, serverKey{}, s)
}

// Servers are those behind the gateway. All methods are safe for concurrent use
// and answer from memory.
type Servers interface {
	// For is the server to which requests for an API group go; false if none.
	For(group string) (Server, bool)
	// Claims says whether a server gets the requests for a group that it serves,
	// where no other does: the group is not its own business.
	Claims(server, group string) bool
	// Kind is what the server's discovery says of a resource. The error is one for
	// the caller: NotFound if discovery does not show it, and ServiceUnavailable
	// while discovery is not known.
	Kind(server string, resource schema.GroupVersionResource) (canonical.Kind, error)
	// Names are the names of all servers that are registered.
	Names() []string
	// Client is how the gateway speaks to the server as itself, not as a user: it
	// needs leave to get, list and delete what is guarded. The config's Host is
	// the base URL, with its path. It is an error if there is no such server.
	Client(server string) (*rest.Config, *http.Client, error)
}
