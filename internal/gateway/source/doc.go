// Package source reads the RemoteAPIServers that a gateway is to serve, from a file or
// from any Kubernetes API, and writes their status back. It never forgets servers because
// the file or the API cannot be read, and never connects to a server.
package source

import (
	"context"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
)

// Source says which servers are registered.
type Source interface {
	// Run calls set with all servers, first when they are known and then after every
	// change, one call after the other. set may keep the servers, and must not change
	// them. While the file or the API cannot be read or understood, Run goes on and does
	// not call set: the servers stay as they were. Run returns nil when ctx ends.
	Run(ctx context.Context, set func([]*v1alpha1.RemoteAPIServer)) error
	// Credentials reads the gateway's own credentials for a server, as they are now. It
	// is called every few seconds, from many goroutines, and must not wait for anything
	// but a disk. The error says what to mend.
	Credentials(*v1alpha1.RemoteAPIServer) (Credentials, error)
	// SetStatus takes the status of a server, often an unchanged one. It does not wait,
	// and only the last status of a server is written.
	SetStatus(name string, status v1alpha1.RemoteAPIServerStatus)
	// Problem says why the source is not up to date; "" if it is.
	Problem() string
}
