// Package gateway serves many API servers as one: it follows the RemoteAPIServers of a
// source, merges their discovery, and sends each request to the server that holds its
// group. It never stores an object of a server, and starts without any server, and without
// the source.
//
// A server is a registered API server, a RemoteAPIServer; an endpoint is one of its
// addresses; a backend forwards requests to one server's endpoints.
package gateway
