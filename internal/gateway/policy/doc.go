// Package policy enforces the core server's namespaces, authorization, quotas and limit
// ranges on requests to servers that know nothing of them. It judges the canonical form of a
// request and sends on that form. It never answers for a server, with one exception: it
// refuses a patch of an object that does not exist.
//
// This package reads requests and answers refusals. The rooms below it, from top to
// bottom: upkeep keeps true what is held, whatever dies; quota lets creates in;
// namespaces keeps finalizers and drains; core reads and writes the core server;
// servers asks the registered servers what they hold; limitrange judges objects;
// ledger is what all gateways must agree on about one namespace.
//
// # What is held
//
// A gateway writes a create into its namespace's ledger as pending before it sends
// the request. The ledger is a text in a ConfigMap on the core server that only
// changes by compare-and-swap. These are the invariants:
//
//  1. used >= objects that exist + pending creates. A create is pending, and
//     counted, before its request is sent.
//  2. A create becomes pending only if used stays within the quota's hard limit, in
//     one compare-and-swap: no number of gateways goes above the limit.
//  3. A pending create ends as landed (used keeps it), as failed (the server has
//     refused it, or was never asked; used gives it back), or because it expired.
//     Apart from that only a recount lowers used: to the objects listed, plus the
//     pending creates, plus those that landed since the list began.
//  4. A pending create expires once a gateway has seen it pending, by its own
//     monotonic clock, for longer than its request can live: the request's deadline,
//     which the server is told, plus the grace. Until then it counts; then a list
//     that begins after that shows whether it landed. So every reservation is given
//     back or counted in bounded time, whatever dies.
//  5. A server's finalizer is on the namespace, and the ledger says so, before the
//     first create to the server is pending. When a namespace is deleted, its ledger
//     drains: no create becomes pending. Its objects at a server are deleted once no
//     create to that server is pending, and the finalizer is taken off once a list
//     shows nothing.
//  6. One user's pending creates are at most half, rounded up, of the quota that no
//     object uses, and at most maxUserPending in a namespace.
//
// One thing is assumed of servers: a server does not carry a create out later than
// the grace after the deadline that it was told. If it does, a later recount finds
// the object, and then shows used above hard.
package policy
