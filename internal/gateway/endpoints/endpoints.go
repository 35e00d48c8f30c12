// Package endpoints knows which addresses of one server are healthy, and which of them a
// client should try first. It connects to none of them.
package endpoints

import (
	"cmp"
	"hash/maphash"
	"math"
	"net/url"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// State says whether an endpoint is healthy, as far as the gateway knows.
type State string

// The states of an endpoint.
const (
	Unknown State = "Unknown" // the endpoint was not checked yet; it gets requests
	Healthy State = "Healthy" // the endpoint says that it is ready
	Unready State = "Unready" // the endpoint answers, and says that it is not ready
	Down    State = "Down"    // the endpoint does not answer
)

// EndpointHealth is what is known of an endpoint.
type EndpointHealth struct {
	URL       string
	State     State
	Ejected   bool          // set aside for failing callers' requests
	LastError string        // why it is not healthy, or was last ejected
	Checked   time.Time     // when the last health check ended; zero: never
	Latency   time.Duration // of the last check that was answered
}

// Health is what is known of a server.
type Health struct {
	// Available says that some endpoint is Healthy or Unknown. If it is false,
	// requests are still tried at endpoints that are Unready.
	Available bool
	// Checked says that every endpoint has had a health check.
	Checked   bool
	LastError string        // of the first endpoint that has an error; "" if an endpoint is healthy
	Latency   time.Duration // of the fastest healthy endpoint
	Endpoints []EndpointHealth
}

// Endpoint is one address of the server.
type Endpoint struct {
	Base *url.URL      // the API is below this URL
	Kick chan struct{} // asks for a health check now; holds one
	hash uint64

	mu        sync.Mutex
	health    EndpointHealth // guarded by mu
	failures  int            // callers' requests that failed in a row; guarded by mu
	ejections wait.Backoff   // how long the next ejections last, until a request is answered; guarded by mu
	until     time.Time      // the endpoint is ejected until then; guarded by mu
}

// Ejection says after how many failures in a row an endpoint is set aside, for how
// long the first time, and for how long at most; the time doubles in between.
type Ejection struct {
	After       int
	First, Most time.Duration
}

func (e Ejection) spans() wait.Backoff {
	return wait.Backoff{Duration: e.First, Factor: 2, Cap: e.Most, Steps: math.MaxInt}
}

// Set are the addresses of one server. Its methods are safe for concurrent use.
type Set struct {
	All   []*Endpoint // in the order that they were given; fixed
	seed  maphash.Seed
	eject Ejection
}

// New returns the set of endpoints with these base URLs. Their states are unknown.
func New(bases []*url.URL, eject Ejection) *Set {
	e := &Set{seed: maphash.MakeSeed(), eject: eject}
	for _, u := range bases {
		e.All = append(e.All, &Endpoint{
			Base: u, hash: maphash.String(e.seed, u.String()), Kick: make(chan struct{}, 1),
			health: EndpointHealth{URL: u.String(), State: Unknown}, ejections: eject.spans(),
		})
	}
	return e
}

// Order returns the endpoints to try for a client, best first; none if all are down. A
// client stays with one endpoint while that endpoint is healthy. Otherwise, if one replica
// lags another, the client could see older state after newer state. Different clients get
// different endpoints. Endpoints that are unready or ejected come last.
func (e *Set) Order(client string, now time.Time) []*Endpoint {
	type ranked struct {
		*Endpoint
		rank   int
		weight uint64
	}
	var usable []ranked
	for _, ep := range e.All {
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
	out := make([]*Endpoint, len(usable))
	for i, u := range usable {
		out[i] = u.Endpoint
	}
	return out
}

const (
	rankGood = iota
	rankEjected
	rankUnready
	rankDown
)

func (ep *Endpoint) rank(now time.Time) int {
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

// State returns the state after the last health check.
func (ep *Endpoint) State() State {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.health.State
}

// Succeeded notes that a caller's request was answered by ep.
func (e *Set) Succeeded(ep *Endpoint) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.failures, ep.ejections, ep.until = 0, e.eject.spans(), time.Time{}
}

// Failed notes that ep did not answer a caller's request, or answered it with a server
// error, and says whether that ejects the endpoint. The only endpoint of a server is never
// ejected, because every request would fail then.
func (e *Set) Failed(ep *Endpoint, why string, now time.Time) (ejected bool) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.failures++
	if ep.failures < e.eject.After || now.Before(ep.until) || len(e.All) == 1 {
		return false
	}
	ep.until = now.Add(ep.ejections.Step())
	ep.failures = 0
	ep.health.LastError = why
	return true
}

// Checked notes the outcome of a health check, and returns the state before it.
func (ep *Endpoint) Checked(s State, why string, latency time.Duration, now time.Time) (before State) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	before = ep.health.State
	ep.health.State, ep.health.LastError, ep.health.Checked = s, why, now
	if s != Down {
		ep.health.Latency = latency
	}
	return before
}

// Health returns what is known of the server.
func (e *Set) Health(now time.Time) Health {
	h := Health{Checked: true}
	for _, ep := range e.All {
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

// LastError says why no endpoint can be used.
func (e *Set) LastError() string { return e.Health(time.Time{}).LastError }
