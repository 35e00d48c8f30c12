package backend

import (
	"cmp"
	"hash/maphash"
	"net/url"
	"slices"
	"sync"
	"time"
)

// State is what the gateway thinks of an endpoint.
type State string

// The states of an endpoint.
const (
	Unknown State = "Unknown" // not asked yet; it gets requests
	Healthy State = "Healthy" // it says it is ready
	Unready State = "Unready" // it answers, and says it is not ready
	Down    State = "Down"    // it does not answer
)

// EndpointHealth is what is known of an endpoint.
type EndpointHealth struct {
	URL       string
	State     State
	Ejected   bool          // set aside for failing callers' requests
	LastError string        // why it is not healthy, or was last ejected
	Checked   time.Time     // when it was last asked; zero if never
	Latency   time.Duration // of the last check that was answered
}

// Health is what is known of a server.
type Health struct {
	// Available says that some endpoint is healthy, or was not asked yet. Requests
	// are tried even so, as long as an endpoint answers at all.
	Available bool
	// Checked says that every endpoint has been asked.
	Checked   bool
	LastError string        // of the first endpoint that has one, where none is healthy
	Latency   time.Duration // of the fastest healthy endpoint
	Endpoints []EndpointHealth
}

// endpoint is one address of the server.
type endpoint struct {
	base *url.URL
	hash uint64
	kick chan struct{} // asks for a health check now; never blocks who sends

	mu        sync.Mutex
	health    EndpointHealth
	failures  int       // callers' requests failed in a row
	ejections int       // in a row, without a good answer between
	until     time.Time // ejected until then
}

// ejection is how many failures in a row set an endpoint aside, for how long
// the first time, and for how long at most; it doubles in between.
type ejection struct {
	after       int
	first, most time.Duration
}

// endpoints are the addresses of one server.
type endpoints struct {
	all   []*endpoint
	seed  maphash.Seed
	eject ejection
}

func newEndpoints(bases []*url.URL, eject ejection) *endpoints {
	e := &endpoints{seed: maphash.MakeSeed(), eject: eject}
	for _, u := range bases {
		e.all = append(e.all, &endpoint{
			base: u, hash: maphash.String(e.seed, u.String()), kick: make(chan struct{}, 1),
			health: EndpointHealth{URL: u.String(), State: Unknown},
		})
	}
	return e
}

// order is which endpoints to try for a client, best first; none if all are
// down. A client keeps to one endpoint while it is well, so that it does not
// see time run backwards where one replica lags another; different clients
// spread. Endpoints that are not ready, and those ejected, serve only where
// there is no better.
func (e *endpoints) order(client string, now time.Time) []*endpoint {
	type ranked struct {
		*endpoint
		rank   int
		weight uint64
	}
	var usable []ranked
	for _, ep := range e.all {
		if rank := ep.rank(now); rank < rankDown {
			usable = append(usable, ranked{ep, rank, 0})
		}
	}
	if len(usable) > 1 {
		for i := range usable {
			usable[i].weight = maphash.Comparable(e.seed, [2]any{client, usable[i].hash})
		}
		slices.SortFunc(usable, func(a, b ranked) int {
			return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.weight, b.weight))
		})
	}
	out := make([]*endpoint, len(usable))
	for i, u := range usable {
		out[i] = u.endpoint
	}
	return out
}

const (
	rankGood = iota
	rankEjected
	rankUnready
	rankDown
)

func (ep *endpoint) rank(now time.Time) int {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	switch {
	case ep.health.State == Down:
		return rankDown
	case ep.health.State == Unready:
		return rankUnready
	case now.Before(ep.until):
		return rankEjected
	}
	return rankGood
}

// succeeded notes that a caller's request was answered.
func (ep *endpoint) succeeded() {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.failures, ep.ejections, ep.until = 0, 0, time.Time{}
}

// failed notes that a caller's request was not answered, or by an error of the
// server's own, and says whether that ejects the endpoint. The only endpoint of
// a server is never ejected: a request that may fail beats one that must.
func (e *endpoints) failed(ep *endpoint, why string, now time.Time) (ejected bool) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.failures++
	if ep.failures < e.eject.after || now.Before(ep.until) || len(e.all) == 1 {
		return false
	}
	ep.until = now.Add(e.eject.span(ep.ejections))
	ep.failures = 0
	ep.ejections++
	ep.health.LastError = why
	return true
}

// span is how long an endpoint is set aside that was already so n times.
func (e ejection) span(n int) time.Duration {
	d := e.first
	for range n {
		if d >= e.most {
			break
		}
		d *= 2
	}
	return min(d, e.most)
}

// checked notes the outcome of a health check, and says what the state was.
func (ep *endpoint) checked(s State, why string, latency time.Duration, now time.Time) (before State) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	before = ep.health.State
	ep.health.State, ep.health.LastError, ep.health.Checked = s, why, now
	if s != Down {
		ep.health.Latency = latency
	}
	return before
}

// health is a copy of what is known.
func (e *endpoints) health(now time.Time) Health {
	h := Health{Checked: true}
	for _, ep := range e.all {
		ep.mu.Lock()
		eh := ep.health
		eh.Ejected = now.Before(ep.until)
		ep.mu.Unlock()
		h.Endpoints = append(h.Endpoints, eh)
		h.Available = h.Available || eh.State == Healthy || eh.State == Unknown
		h.Checked = h.Checked && eh.State != Unknown
		if eh.State == Healthy && (h.Latency == 0 || eh.Latency < h.Latency) {
			h.Latency = eh.Latency
		}
		if h.LastError == "" {
			h.LastError = eh.LastError
		}
	}
	if h.Latency != 0 {
		h.LastError = ""
	}
	return h
}

// lastError is why no endpoint can be had.
func (e *endpoints) lastError() string { return e.health(time.Time{}).LastError }
