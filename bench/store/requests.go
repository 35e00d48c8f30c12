package store

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
)

// Requests counts those that a bucket is sent, by what they cost.
type Requests struct{ puts, gets atomic.Int64 }

// Cost is a number of requests of each price.
type Cost struct {
	Puts float64 // PUTs and LISTs
	Gets float64 // GETs and HEADs; DELETEs cost nothing
}

// Dollars is what they cost at AWS, in us-east-1.
func (c Cost) Dollars() float64 { return c.Puts*5e-6 + c.Gets*0.4e-6 }

// Since is what was sent since then, for each of n operations.
func (c Cost) Since(then Cost, n int) Cost {
	return Cost{(c.Puts - then.Puts) / float64(n), (c.Gets - then.Gets) / float64(n)}
}

// Cost is what was sent until now.
func (r *Requests) Cost() Cost { return Cost{float64(r.puts.Load()), float64(r.gets.Load())} }

// Count puts a counter before the bucket, for writers that start from now on. The counter
// takes processor time of its own: measure no latency behind it.
func (b *Bucket) Count() (*Requests, func()) {
	requests := new(Requests)
	to := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: b.Addr})
	counter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPut || r.URL.Query().Has("list-type"):
			requests.puts.Add(1)
		case r.Method != http.MethodDelete:
			requests.gets.Add(1)
		}
		to.ServeHTTP(w, r)
	}))
	b.Addr = counter.Listener.Addr().String()
	return requests, counter.Close
}
