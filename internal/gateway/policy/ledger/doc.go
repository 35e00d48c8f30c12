// Package ledger is what several gateways must agree on about one namespace: which
// creates are pending, how much of each quota is used, and which servers have their
// finalizer on the namespace. It changes that only by compare-and-swap on a stored
// text, and it never asks a server, reads a namespace or knows an HTTP request.
//
// A Ledger is the value and decides; a Handle reads and writes it; a Set has one
// gateway's handles.
package ledger
