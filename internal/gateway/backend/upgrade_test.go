package backend

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
)

const exec = "/api/v1/namespaces/default/pods/a/exec?command=sh&stdin=true"

// echo is a server that runs exec-like streams, by WebSocket or SPDY, which
// say back what they are told.
type echo struct {
	rec  recorder
	gone chan struct{} // gets one when a stream's connection has ended
}

func newEcho() *echo {
	e := &echo{gone: make(chan struct{}, 16)}
	e.rec.also = e.serve
	return e
}

func (e *echo) serve(w http.ResponseWriter, r *http.Request) {
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		up := websocket.Upgrader{Subprotocols: []string{"v5.channel.k8s.io"}, CheckOrigin: func(*http.Request) bool { return true }}
		conn, err := up.Upgrade(w, r, http.Header{"Set-Cookie": {"evil=1"}})
		if err != nil {
			return
		}
		defer func() { conn.Close(); e.gone <- struct{}{} }()
		for {
			kind, data, err := conn.ReadMessage()
			if err != nil {
				return
			}
			conn.WriteMessage(kind, data)
		}
	}
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		go func() { io.Copy(s, s); s.Close() }()
		return nil
	})
	if conn == nil {
		return
	}
	<-conn.CloseChan()
	e.gone <- struct{}{}
}

func (e *echo) waitGone(t *testing.T) {
	t.Helper()
	select {
	case <-e.gone:
	case <-time.After(patience):
		t.Fatal("the stream at the server outlives the caller's")
	}
}

func dialer(gw *httptest.Server) *websocket.Dialer {
	config := gw.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = nil
	return &websocket.Dialer{TLSClientConfig: config, Subprotocols: []string{"base64url.bearer.authorization.k8s.io.YWxpY2Vz", "v5.channel.k8s.io"}}
}

func TestWebSocket(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			e := newEcho()
			api := startServer(t, &e.rec)
			// The limit on answers is not one on streams.
			b := newBackend(t, specOf(mode, api), clientCredentials(t, "gateways-own"), Options{IdleTimeout: time.Nanosecond})
			gw := startGateway(t, b, alice)
			header := http.Header{"Authorization": {"Bearer alices"}, "X-Remote-User": {"admin"}, "X_Remote_Group": {"system:masters"}, "Cookie": {"a=b"}}
			conn, resp, err := dialer(gw).Dial(strings.Replace(gw.URL, "https", "wss", 1)+exec, header)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if resp.Header.Get("Set-Cookie") != "" || conn.Subprotocol() != "v5.channel.k8s.io" {
				t.Errorf("the answer: %v", resp.Header)
			}
			for i := range 100 {
				want := fmt.Sprint("message ", i)
				if err := conn.WriteMessage(websocket.BinaryMessage, []byte(want)); err != nil {
					t.Fatal(err)
				}
				if _, got, err := conn.ReadMessage(); err != nil || string(got) != want {
					t.Fatalf("message %d: got %q, %v", i, got, err)
				}
			}
			got := e.rec.take()
			if diff := cmp.Diff(whom(mode, "Bearer alices"), identityHeaders(got[0].Header)); diff != "" {
				t.Errorf("the server is told (-want +got):\n%s", diff)
			}
			if p := got[0].Header["Sec-Websocket-Protocol"]; mode != v1alpha1.PassThrough && !slices.Equal(p, []string{"v5.channel.k8s.io"}) {
				t.Errorf("subprotocols %q", p)
			}
			if name := got[0].Certificate; (mode == v1alpha1.PassThrough) != (name == "") {
				t.Errorf("the connection shows the certificate of %q", name)
			}
			conn.Close()
			e.waitGone(t)
		})
	}
}

func TestSPDY(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			e := newEcho()
			api := startServer(t, &e.rec)
			gw := startGateway(t, newBackend(t, specOf(mode, api), clientCredentials(t, "gateways-own"), Options{}), alice)
			config := gw.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
			config.NextProtos = nil
			rt, err := spdy.NewRoundTripper(config)
			if err != nil {
				t.Fatal(err)
			}
			req := newRequest(t, http.MethodPost, gw.URL+exec, nil)
			req.Header.Set("Authorization", "Bearer alices")
			req.Header.Set("X-Remote-User", "admin")
			resp, err := rt.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			conn, err := rt.NewConnection(resp)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			for i := range 10 {
				s, err := conn.CreateStream(http.Header{"streamType": {"stdout"}})
				if err != nil {
					t.Fatal(err)
				}
				want := strings.Repeat(fmt.Sprint(i), 100_000)
				go func() { io.WriteString(s, want); s.Close() }()
				if got, err := io.ReadAll(s); err != nil || string(got) != want {
					t.Fatalf("stream %d: got %d bytes, %v", i, len(got), err)
				}
			}
			if diff := cmp.Diff(whom(mode, "Bearer alices"), identityHeaders(e.rec.take()[0].Header)); diff != "" {
				t.Errorf("the server is told (-want +got):\n%s", diff)
			}
			conn.Close()
			e.waitGone(t)
		})
	}
}

// A server that does not upgrade is heard, and one that hangs is given up.
func TestUpgradeRefused(t *testing.T) {
	arrived, gone := make(chan struct{}, 4), make(chan struct{}, 4)
	api := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/attach"):
			arrived <- struct{}{}
			<-r.Context().Done()
			gone <- struct{}{}
		case strings.HasSuffix(r.URL.Path, "/portforward"):
			http.Redirect(w, r, "https://evil.example.com", http.StatusTemporaryRedirect)
		default:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			io.WriteString(w, `{"kind":"Status","message":"no exec for you"}`)
		}
	}))
	gw := startGateway(t, newBackend(t, specOf(v1alpha1.PassThrough, api), nil, Options{ResponseTimeout: 200 * time.Millisecond}), alice)
	wss := strings.Replace(gw.URL, "https", "wss", 1)
	try := func(ctx context.Context, path string) (int, string, error) {
		conn, resp, err := dialer(gw).DialContext(ctx, wss+path, nil)
		if err == nil {
			conn.Close()
			t.Fatalf("%s: upgraded", path)
		}
		if resp == nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body), err
	}
	if code, body, _ := try(t.Context(), exec); code != http.StatusForbidden || !strings.Contains(body, "no exec for you") {
		t.Errorf("refused: got %d %s", code, body)
	}
	if code, body, _ := try(t.Context(), "/api/v1/namespaces/default/pods/a/portforward"); code != http.StatusBadGateway || !strings.Contains(body, "redirect (307)") {
		t.Errorf("redirected: got %d %s", code, body)
	}
	if code, body, _ := try(t.Context(), "/api/v1/namespaces/default/pods/a/attach"); code != http.StatusGatewayTimeout || !strings.Contains(body, "widgets") {
		t.Errorf("hangs: got %d %s", code, body)
	}
	<-arrived
	<-gone
}

// A caller who goes away while a server thinks about an upgrade ends it there.
func TestUpgradeCancelled(t *testing.T) {
	arrived, gone := make(chan struct{}), make(chan struct{})
	api := startServer(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
		close(gone)
	}))
	gw := startGateway(t, newBackend(t, specOf(v1alpha1.PassThrough, api), nil, Options{}), alice)
	conn, err := net.Dial("tcp", plainGateway(t, rig{gw: gw}).Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "GET "+exec+" HTTP/1.1\r\nHost: gw\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-arrived
	conn.Close()
	select {
	case <-gone:
	case <-time.After(patience):
		t.Fatal("the server's request outlives the caller's")
	}
}
