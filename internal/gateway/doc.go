// Package gateway is one front for many API servers: it follows the
// RemoteAPIServers of a source, merges their discovery, and sends each request to
// the server that holds its group. It never keeps an object of a server, and never
// needs a server, or the source, to start.
package gateway
