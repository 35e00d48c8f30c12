// Package gateway is one front for many API servers: it follows the
// RemoteAPIServers of a source, makes one discovery of theirs, and sends each
// request to the server that holds its group. It never keeps an object of
// theirs, and never needs any of them, or the source, to start.
package gateway
