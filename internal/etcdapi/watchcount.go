package etcdapi

import "sync/atomic"

// Watches counts the watches of a server, and the events sent to them.
type Watches struct {
	Streams  int64 // open Watch calls
	Watchers int64 // of all streams
	Behind   int64 // watchers that are given history before they are given what is new
	Events   uint64
}

// watchCounts count the watches of all streams. Invariant: 0 <= behind <= watchers,
// between two steps of the streams.
type watchCounts struct {
	streams, watchers, behind atomic.Int64
	events                    atomic.Uint64
}

// Watches returns the counts of the server's watches.
func (s *Server) Watches() Watches {
	w := &s.watches
	return Watches{Streams: w.streams.Load(), Watchers: w.watchers.Load(), Behind: w.behind.Load(), Events: w.events.Load()}
}
