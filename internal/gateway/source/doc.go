// Package source brings the RemoteAPIServers that a gateway is to serve, from a
// file or from any Kubernetes API, and takes their status back. It never
// forgets servers because the place it has them from is away, and never
// connects to one of them.
package source

import (
	"context"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
)

// Source tells which servers there are.
type Source interface {
	// Run calls set with all servers at once: first when they are known, then
	// after every change, in order, never two calls at a time. What set gets it
	// may keep and must not change. While the place that it reads cannot be
	// read, or holds what cannot be understood, Run goes on and set is not
	// called: what was known stands. It returns when ctx ends, with nil.
	Run(ctx context.Context, set func([]*v1alpha1.RemoteAPIServer)) error
	// Credentials reads the gateway's own at a server, as they are now. It is
	// called every few seconds, from many goroutines, and must not wait for
	// anything but a disk. The error says what to mend.
	Credentials(*v1alpha1.RemoteAPIServer) (Credentials, error)
	// SetStatus takes what is to be told of a server, often the same; it does not
	// wait, and keeps only the last.
	SetStatus(name string, status v1alpha1.RemoteAPIServerStatus)
	// Problem says what keeps the source from being up to date; empty if nothing.
	Problem() string
}
