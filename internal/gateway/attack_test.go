package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/internal/gateway/traffic"
)

// never is a body that does not come.
type never struct{ ended <-chan struct{} }

func (n never) Read([]byte) (int, error) { <-n.ended; return 0, io.ErrUnexpectedEOF }

// TestAttacks: three ordinary users hold all that they can get, by requests
// whose bodies do not end, by answers that they do not read, and by watches.
// Everybody else is served meanwhile, administrators and health checks too.
func TestAttacks(t *testing.T) {
	const things = "/apis/one.example.com/v1/namespaces/n/things"
	for name, attack := range map[string]struct {
		method, path string
		then         string // what another user asks for
	}{
		"bodies that do not end":    {http.MethodPost, things, things},
		"answers that nobody reads": {http.MethodGet, things + "?endless", things},
		"watches":                   {http.MethodGet, things + "?watch=true", things + "?watch=true"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer(t, "s", "one.example.com")
			f := start(t, newGiven(s.object()), func(c *Config) {
				c.Limits = traffic.Limits{ServerRequests: 40, ServerStreams: 40, UserRequests: 20, UserStreams: 20}
			})
			f.becomes(things, 200, `"server":"s"`)
			ctx, end := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			defer wg.Wait()
			defer end()
			const all = 60
			refused := make(chan int, all)
			for _, user := range []string{"mallory", "mark", "mary"} {
				for range all / 3 {
					wg.Go(func() {
						if code := attackOnce(ctx, f, user, attack.method, attack.path); ctx.Err() == nil {
							refused <- code
						}
					})
				}
			}
			held := 0
			for deadline := time.Now().Add(30 * time.Second); len(refused)+held < all; time.Sleep(10 * time.Millisecond) {
				if held = f.gateway.traffic.UnderWay(); time.Now().After(deadline) {
					t.Fatalf("%d are under way, %d were refused", held, len(refused))
				}
			}
			t.Logf("three users hold %d of 40 places", held)
			for _, user := range []string{"dave", "erin", "root"} {
				if code := f.ask(user, attack.then); code != http.StatusOK {
					t.Errorf("%s gets %d while three others hold %d places", user, code, held)
				}
			}
			if code := f.ask("", "/readyz"); code != http.StatusOK {
				t.Errorf("/readyz is %d", code)
			}
		})
	}
}

// attackOnce sends a request whose body does not end, and does not read the
// answer; it returns the code of a refusal, or 0 once ctx has ended.
func attackOnce(ctx context.Context, f *front, user, method, path string) int {
	r, err := http.NewRequestWithContext(ctx, method, f.url+path, nil)
	if err != nil {
		return -1
	}
	if method == http.MethodPost {
		r.Body = io.NopCloser(never{ctx.Done()})
	}
	r.Header.Set("Authorization", "Bearer "+user)
	resp, err := f.client.Do(r)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		<-ctx.Done()
		return 0
	}
	return resp.StatusCode
}

// ask is the code of an answer, of which the beginning is read.
func (f *front) ask(user, path string) int {
	ctx, cancel := context.WithCancel(f.t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+path, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	if user != "" {
		r.Header.Set("Authorization", "Bearer "+user)
	}
	resp, err := f.client.Do(r)
	if err != nil {
		f.t.Errorf("%s asks for %s: %v", user, path, err)
		return 0
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// TestManyConnections: an address that opens connections without end gets some,
// and other addresses still get theirs.
func TestManyConnections(t *testing.T) {
	s := newAPIServer(t, "s", "one.example.com")
	f := start(t, newGiven(s.object()), func(c *Config) { c.MaxConnections = 20 })
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	address := strings.TrimPrefix(f.url, "https://")
	open := 0
	for range 30 {
		c, err := dialer.DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Skipf("this system has no second address of its own: %v", err)
		}
		defer c.Close()
		// A connection that may stay is spoken to; one beyond is closed.
		if err := tls.Client(c, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(t.Context()); err == nil {
			open++
		} else if !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") {
			t.Fatal(err)
		}
	}
	if open == 0 || open > 10 {
		t.Errorf("one address has %d of 20 connections", open)
	}
	f.becomes("/apis/one.example.com/v1/things", 200, `"server":"s"`)
}
