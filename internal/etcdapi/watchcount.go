package etcdapi

import "sync/atomic"

// Watches is how many watches a server has, and what it has sent them.
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

// Watches returns how many watches there are now.
func (s *Server) Watches() Watches {
	w := &s.watches
	return Watches{Streams: w.streams.Load(), Watchers: w.watchers.Load(), Behind: w.behind.Load(), Events: w.events.Load()}
}
