// Package policy holds the core server's namespaces, authorization and quotas
// over servers that know nothing of them: it lets a request through the gateway
// only if the core server lets its user, a create only once it is written down,
// and empties a namespace everywhere before it goes. It judges the canonical form
// of a request and sends that, and never answers for a server, but for a patch of
// what is not there.
//
// # What is held
//
// What several gateways must agree on about one namespace is its ledger, a text
// in a ConfigMap on the core server that is only ever changed by
// compare-and-swap. It names each create that is under way, a flight, and
// counts the objects of each resource that has a quota.
//
//  1. used ≥ objects that exist + flights. A flight is written down, and
//     counted, before its request is sent.
//  2. A flight is let in only if used stays at or below the quota's hard limit,
//     in one compare-and-swap: no number of gateways goes above it.
//  3. A flight leaves as landed (used keeps it), as returned (the server has
//     said no, or was never asked; used gives it back), or by lapse. Nothing
//     else lowers used but a recount: a list of what exists, plus the flights,
//     plus what landed since before the list.
//  4. A flight lapses only after a gateway has watched it, by its own monotonic
//     clock, for longer than its request can live: its own deadline, which is
//     told to the server as well, and the settling time on top. Until then it
//     counts; then a list that begins after the lapse says whether it landed.
//     So a reservation is given back or counted in bounded time, whoever died.
//  5. A server's finalizer is on the namespace, and the ledger says so, before
//     the first flight to it. A namespace that is being deleted has its ledger
//     closed first; its server is emptied once no flight to it is left; the
//     finalizer goes once a list has shown nothing.
//  6. Of the places of a quota that no object holds, half, rounded up, are under
//     way for one user at most, and maxUserFlights in a namespace.
//
// The settling time is an assumption, and the only one: a server does not carry
// a create out later than that after the deadline it was given. One that does is
// found by a later recount, which then shows used above hard.
package policy
