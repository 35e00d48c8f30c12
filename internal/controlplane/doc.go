// Package controlplane runs a generic Kubernetes control plane, in process and
// unforked, on an etcd endpoint: API server, CRDs, aggregation, RBAC, admission
// and the controllers that need no nodes. It never learns what is behind that
// endpoint, and it knows neither pods nor nodes.
//
// # One server per process
//
// k8s.io/kubernetes keeps feature gates, metrics, loggers and its exit function
// in globals. A process therefore runs one Server at a time; a second Run is
// refused while the first is up.
//
// # Several servers on one store
//
// Any number of servers may share a store without being able to reach each
// other. Each keeps its own data directory with its own CA and its own
// service-account signing key, and no private key ever leaves that directory.
// The others need the server's CA certificate and its public service-account key.
// These are published in the store itself, below /xbernetes/servers/
// and outside of everything the Kubernetes API can write. Every server watches
// that roster, and so
//
//   - verifies service-account tokens issued by any of them (one issuer, every key),
//   - accepts client certificates signed by any of their CAs,
//   - publishes the bundle of all their CAs as kube-root-ca.crt.
//
// Servers that share a store share all of its state, RBAC included, so trusting
// each other's credentials grants nothing that write access to the store does
// not. Removing a server's key from the roster revokes everything it signed.
package controlplane
