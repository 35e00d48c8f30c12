package cluster

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// A Gate stands before a cluster's API server, and counts, cuts, or interrupts
// what passes. It lets each caller's own credentials through.
type Gate struct {
	URL string // with the API server's own certificate: clients give no credentials without TLS

	proxy *httputil.ReverseProxy

	mu     sync.Mutex
	cut    chan struct{} // closed while nothing passes
	closed bool
	writes int
	last   string
	hit    func(n int, write string) Verdict
}

// A Verdict is what comes of a write that passes.
type Verdict int

// What may come of a write: it passes; it is lost; it is done, and its answer lost.
const (
	Pass Verdict = iota
	Lose
	LoseAnswer
)

// NewGate opens a gate before the cluster's API server.
func (c *Cluster) NewGate() (*Gate, error) {
	target, err := url.Parse(c.Config.Host)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(&rest.Config{Host: c.Config.Host, TLSClientConfig: c.Config.TLSClientConfig})
	if err != nil {
		return nil, err
	}
	g := &Gate{cut: make(chan struct{})}
	g.proxy = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	lis, err := net.Listen("tcp", net.JoinHostPort(target.Hostname(), "0"))
	if err != nil {
		return nil, err
	}
	g.URL = "https://" + lis.Addr().String()
	server := &http.Server{Handler: g, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = server.ServeTLS(lis, c.CAFile(), c.path("certs/apiserver.key")) }() // until it is closed
	c.lab.onClose(func() { _ = server.Close() })
	return g, nil
}

// isWrite says whether a request changes what others see: not those that renew
// a lease, report an event, or ask what is allowed.
func isWrite(r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions {
		return false
	}
	for _, part := range []string{"/leases", "/events", "/selfsubject", "/subjectaccessreviews", "/tokenreviews"} {
		if strings.Contains(r.URL.Path, part) {
			return false
		}
	}
	return true
}

// ServeHTTP lets a request pass, or does not.
func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	verdict := Pass
	g.mu.Lock()
	cut := g.cut
	if !g.closed && isWrite(r) {
		g.writes++
		g.last = fmt.Sprintf("%s %s", r.Method, r.URL.Path)
		if hit := g.hit; hit != nil {
			verdict = hit(g.writes, g.last)
		}
	}
	closed := g.closed
	g.mu.Unlock()
	switch {
	case closed || verdict == Lose:
		panic(http.ErrAbortHandler)
	case verdict == LoseAnswer:
		g.proxy.ServeHTTP(discard{http.Header{}}, r)
		panic(http.ErrAbortHandler)
	}
	done := make(chan struct{})
	defer close(done)
	controller := http.NewResponseController(w)
	go func() { // a watch that is open ends when the gate closes
		select {
		case <-cut:
			_ = controller.SetWriteDeadline(time.Now())
			_ = controller.SetReadDeadline(time.Now())
		case <-done:
		}
	}()
	g.proxy.ServeHTTP(w, r)
}

// OnWrite calls hit, one at a time, before each write from now on, counted
// from 1, and does what it says.
func (g *Gate) OnWrite(hit func(n int, write string) Verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.writes, g.hit = 0, hit
}

// Writes is how many have come since OnWrite, and the last.
func (g *Gate) Writes() (int, string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.writes, g.last
}

// Cut parts the cluster from those before the gate: nothing passes, and what
// is open ends.
func (g *Gate) Cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.closed = true
		close(g.cut)
	}
}

// Mend ends a Cut.
func (g *Gate) Mend() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		g.closed = false
		g.cut = make(chan struct{})
	}
}

// discard is the answer that nobody gets.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}
