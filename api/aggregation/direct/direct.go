// Package direct sends a gateway's client straight to the API servers behind the
// gateway. A request goes to the server of its group if discovery has the server's
// address and the client knows how to reach it, and through the gateway otherwise.
// The package never sends the gateway's credentials to another server, and never
// sends a write twice.
package direct

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Options say which servers to go to, and how.
type Options struct {
	// Reach returns how to reach a server directly: its certificate authority, and
	// the caller's credentials there. It returns nil if requests to the server must
	// go through the gateway. The address is the one in discovery,
	// HOST[:PORT][/PATH]. Discovery comes from the gateway, so a Reach that gives
	// credentials for any address trusts the gateway to choose who gets them. If
	// Host is empty in the config, it is https://ADDRESS. Reach is called once for
	// each address, and must not block. If Reach is nil, everything goes through the
	// gateway.
	Reach func(group, address string) *rest.Config
	// ClientIP chooses among the addresses of a server that has several for
	// different ranges of clients: the address for the narrowest range that contains
	// ClientIP. If it is not set, the address for all clients is chosen.
	ClientIP netip.Addr
	// Refresh is how often addresses are read again; a minute if zero.
	Refresh time.Duration
	// Pause is how long the gateway is used instead of a server that could not be
	// reached; 10 seconds if zero.
	Pause time.Duration
}

// Only is a Reach to these addresses, with the CA and credentials of config. If all
// servers know the same users, config is often the one for the gateway.
func Only(config *rest.Config, addresses ...string) func(group, address string) *rest.Config {
	known := map[string]bool{}
	for _, a := range addresses {
		known[a] = true
	}
	return func(_, address string) *rest.Config {
		if !known[address] {
			return nil
		}
		c := rest.CopyConfig(config)
		c.Host, c.APIPath, c.WrapTransport = "", "", nil
		return c
	}
}

// Config is a copy of a gateway's config whose clients go straight to servers.
// Clients of one Config share the addresses. Upgrades, such as exec, go through the
// gateway.
func Config(gateway *rest.Config, opts Options) *rest.Config {
	if opts.Refresh == 0 {
		opts.Refresh = time.Minute
	}
	if opts.Pause == 0 {
		opts.Pause = 10 * time.Second
	}
	d := &directory{opts: opts, now: time.Now}
	d.known.Store(&addresses{})
	out := rest.CopyConfig(gateway)
	base, _, err := rest.DefaultServerUrlFor(out)
	if err != nil {
		base = &url.URL{} // making a client of the config reports the error
	}
	d.base = base
	out.Wrap(func(next http.RoundTripper) http.RoundTripper { return &transport{next, d} })
	return out
}

// directory knows the servers' addresses.
type directory struct {
	opts  Options
	base  *url.URL // of the gateway
	now   func() time.Time
	known atomic.Pointer[addresses]

	asking sync.Mutex // held while a goroutine reads addresses

	mu      sync.Mutex
	servers map[string]*server // by address; ask drops those that known has no more
}

// addresses are those of each group's server. They never change once made.
type addresses struct {
	of  map[string]string // by group
	due time.Time         // when to read them again; zero if never read
}

// server is an API server that requests are sent to directly.
type server struct {
	base  *url.URL
	rt    http.RoundTripper
	until atomic.Int64 // Unix nanoseconds until which the gateway is used instead
}

type transport struct {
	gateway   http.RoundTripper
	directory *directory
}

// WrappedRoundTripper lets client-go find the transport below this one.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.gateway }

// RoundTrip sends a request to its group's server, or through the gateway.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	group, ok := t.directory.groupOf(r.URL.Path)
	if !ok || r.Header.Get("Upgrade") != "" || t.directory.opts.Reach == nil {
		return t.gateway.RoundTrip(r)
	}
	s := t.directory.serverOf(r, group, t.gateway)
	if s == nil || t.directory.now().UnixNano() < s.until.Load() || r.Body != nil && r.Body != http.NoBody && r.GetBody == nil {
		return t.gateway.RoundTrip(r)
	}
	resp, sent, err := s.roundTrip(r, t.directory.base)
	switch {
	case err == nil && resp.StatusCode != http.StatusUnauthorized:
		return resp, nil
	case err == nil:
		// The server does not know the caller, so it has done nothing; the gateway may
		// know the caller.
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // to use the connection again
		resp.Body.Close()
	case r.Context().Err() != nil:
		return nil, err
	case sent && r.Method != http.MethodGet && r.Method != http.MethodHead:
		return nil, err // the server may have carried it out
	}
	s.until.Store(t.directory.now().Add(t.directory.opts.Pause).UnixNano())
	again := r.Clone(r.Context())
	if r.GetBody != nil {
		if again.Body, err = r.GetBody(); err != nil {
			return nil, fmt.Errorf("send the request again through the gateway: %w", err)
		}
	}
	return t.gateway.RoundTrip(again)
}

// roundTrip sends a request to the server; sent is true if there was a connection
// to send it on.
func (s *server) roundTrip(r *http.Request, gateway *url.URL) (resp *http.Response, sent bool, err error) {
	var got atomic.Bool
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { got.Store(true) }})
	out := r.Clone(ctx)
	out.Header.Del("Authorization") // the gateway's; the server's transport adds its own
	out.Host = ""
	out.URL = below(s.base, strings.TrimPrefix(r.URL.Path, strings.TrimSuffix(gateway.Path, "/")))
	out.URL.RawPath = below(s.base, strings.TrimPrefix(r.URL.EscapedPath(), strings.TrimSuffix(gateway.EscapedPath(), "/"))).Path
	out.URL.RawQuery = r.URL.RawQuery
	resp, err = s.rt.RoundTrip(out)
	return resp, got.Load(), err
}

// below is a URL with a path added.
func below(base *url.URL, path string) *url.URL {
	return &url.URL{Scheme: base.Scheme, Host: base.Host, Path: strings.TrimSuffix(base.Path, "/") + path}
}

// groupOf is the group of a path below the gateway's base; ok is false if it is
// not the path of an object or of a collection.
func (d *directory) groupOf(path string) (group string, ok bool) {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(d.base.Path, "/")+"/")
	if !ok {
		return "", false
	}
	switch p := strings.Split(rest, "/"); {
	case p[0] == "api" && len(p) > 2:
		return "", true
	case p[0] == "apis" && len(p) > 3:
		return p[1], true
	}
	return "", false
}

// serverOf is the server to send a group's request to; nil if the request must go
// through the gateway.
func (d *directory) serverOf(r *http.Request, group string, gateway http.RoundTripper) *server {
	known := d.known.Load()
	if !d.now().Before(known.due) {
		known = d.ask(r, known, gateway)
	}
	address, ok := known.of[group]
	if !ok {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if s, ok := d.servers[address]; ok {
		return s
	}
	s := d.reach(group, address)
	if d.servers == nil {
		d.servers = map[string]*server{}
	}
	d.servers[address] = s
	return s
}

// reach makes the connection to a server; nil if Reach does not give one.
func (d *directory) reach(group, address string) *server {
	config := d.opts.Reach(group, address)
	if config == nil {
		return nil
	}
	config = rest.CopyConfig(config)
	if config.Host == "" {
		config.Host = "https://" + address
	}
	base, err := url.Parse(config.Host)
	if err != nil || base.Host == "" {
		return nil
	}
	rt, err := rest.TransportFor(config)
	if err != nil {
		return nil
	}
	return &server{base: base, rt: rt}
}

// ask reads the addresses from the gateway, with the credentials of a request to
// it. While one goroutine does so, the others use the known addresses, or wait if
// there are none yet.
func (d *directory) ask(r *http.Request, known *addresses, gateway http.RoundTripper) *addresses {
	if known.due.IsZero() {
		d.asking.Lock()
	} else if !d.asking.TryLock() {
		return known
	}
	defer d.asking.Unlock()
	if now := d.known.Load(); d.now().Before(now.due) {
		return now // another goroutine has read them
	}
	next := &addresses{of: map[string]string{}, due: d.now().Add(d.opts.Refresh)}
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	var core metav1.APIVersions
	var groups metav1.APIGroupList
	err := d.get(ctx, r, gateway, "apis", &groups)
	if err == nil {
		err = d.get(ctx, r, gateway, "api", &core)
	}
	if err != nil {
		next.of, next.due = known.of, d.now().Add(d.opts.Pause)
	} else {
		next.of[""] = d.choose(core.ServerAddressByClientCIDRs)
		for _, g := range groups.Groups {
			next.of[g.Name] = d.choose(g.ServerAddressByClientCIDRs)
		}
		maps.DeleteFunc(next.of, func(_, address string) bool { return address == "" })
	}
	d.known.Store(next)
	d.forget(next)
	return next
}

// forget drops servers whose address no group has any more.
func (d *directory) forget(known *addresses) {
	named := map[string]bool{}
	for _, address := range known.of {
		named[address] = true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for address := range d.servers {
		if !named[address] {
			delete(d.servers, address)
		}
	}
}

const maxAnswer = 16 << 20

func (d *directory) get(ctx context.Context, r *http.Request, gateway http.RoundTripper, path string, into any) error {
	req := (&http.Request{Method: http.MethodGet, URL: below(d.base, "/"+path), Header: http.Header{"Accept": {"application/json"}}}).WithContext(ctx)
	for _, name := range []string{"Authorization", "User-Agent"} {
		if v := r.Header.Values(name); len(v) > 0 {
			req.Header[name] = v
		}
	}
	resp, err := gateway.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("get /%s: %s", path, resp.Status)
	}
	return json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(into)
}

// choose is the address for this client: the one for the narrowest range that
// contains it, or the one for all clients.
func (d *directory) choose(all []metav1.ServerAddressByClientCIDR) string {
	best, bits := "", -1
	for _, a := range all {
		prefix, err := netip.ParsePrefix(a.ClientCIDR)
		if err != nil {
			continue
		}
		fits := prefix.Bits() == 0
		if d.opts.ClientIP.IsValid() {
			fits = prefix.Contains(d.opts.ClientIP)
		}
		if fits && prefix.Bits() > bits {
			best, bits = a.ServerAddress, prefix.Bits()
		}
	}
	if host, _, _ := strings.Cut(best, "/"); host == "" || net.ParseIP(host) == nil && strings.ContainsAny(host, "@?#% ") {
		return ""
	}
	return best
}
