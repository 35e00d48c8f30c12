package door

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener whose connections are in memory, so that time can be
// faked.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	p.conns <- theirs
	return ours, nil
}

// serve runs a test in a bubble, over HTTP/1.1 and HTTP/2, with a paced handler,
// which may tell the test that it is done.
func serve(t *testing.T, handler func(w http.ResponseWriter, r *http.Request, done chan<- error), test func(t *testing.T, client *http.Client, done <-chan error)) {
	for _, version := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
				protocols := &http.Protocols{}
				protocols.SetHTTP1(version == "HTTP/1.1")
				protocols.SetUnencryptedHTTP2(version == "HTTP/2.0")
				done := make(chan error, 100)
				server := &http.Server{Protocols: protocols, Handler: Pace(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler(w, r, done) }), Pacing{})}
				go server.Serve(l)
				transport := &http.Transport{DialContext: l.dial, Protocols: protocols}
				test(t, &http.Client{Transport: transport}, done)
				transport.CloseIdleConnections()
				server.Close()
				synctest.Wait()
			})
		})
	}
}

func post(client *http.Client, body io.Reader) (int, string, error) {
	r, err := http.NewRequest(http.MethodPost, "http://server/", body)
	if err != nil {
		return 0, "", err
	}
	resp, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(answer), err
}

// trickle is a body that gives some bytes at a time, with pauses, without end.
type trickle struct {
	bytes int
	every time.Duration
	stop  <-chan struct{}
}

func (b trickle) Read(p []byte) (int, error) {
	select {
	case <-time.After(b.every):
		return copy(p, strings.Repeat("x", b.bytes)), nil
	case <-b.stop:
		return 0, io.EOF
	}
}

func TestSlowBodies(t *testing.T) {
	for name, body := range map[string]trickle{
		"nothing comes":        {1, 24 * time.Hour, nil},
		"a byte now and then":  {1, time.Second, nil},
		"just under the speed": {1000, time.Second, nil},
	} {
		t.Run(name, func(t *testing.T) {
			serve(t, func(_ http.ResponseWriter, r *http.Request, done chan<- error) {
				_, err := io.Copy(io.Discard, r.Body)
				done <- err
			}, func(t *testing.T, client *http.Client, done <-chan error) {
				stop := make(chan struct{})
				body.stop = stop
				go post(client, body)
				if err := <-done; !errors.Is(err, ErrSlow) {
					t.Errorf("reading the body: %v", err)
				}
				close(stop)
			})
		})
	}
}

// TestBodiesNobodyReads: a handler that refuses leaves a body behind, for which
// the server waits no longer than it must.
func TestBodiesNobodyReads(t *testing.T) {
	serve(t, func(w http.ResponseWriter, _ *http.Request, _ chan<- error) {
		w.WriteHeader(http.StatusTooManyRequests)
	}, func(t *testing.T, client *http.Client, _ <-chan error) {
		stop := make(chan struct{})
		go post(client, trickle{1, time.Hour, stop})
		time.Sleep(time.Minute) // of the bubble
		close(stop)
		synctest.Wait()
		if code, _, err := post(client, strings.NewReader("x")); code != http.StatusTooManyRequests {
			t.Errorf("the next: %d, %v", code, err)
		}
	})
}

// TestHonestCallers: nobody is ended who gets on: bodies at a fair speed, handlers
// that take long before, between and after, and connections used again.
func TestHonestCallers(t *testing.T) {
	serve(t, func(w http.ResponseWriter, r *http.Request, _ chan<- error) {
		time.Sleep(time.Hour)
		n, err := io.Copy(io.Discard, r.Body)
		for i := range 3 {
			fmt.Fprintf(w, "%d %d %v\n", i, n, err)
			http.NewResponseController(w).Flush()
			time.Sleep(time.Hour)
		}
	}, func(t *testing.T, client *http.Client, _ <-chan error) {
		for range 3 {
			for _, body := range []io.Reader{nil, strings.NewReader("body"), io.LimitReader(trickle{9000, time.Second, nil}, 10<<20)} {
				code, answer, err := post(client, body)
				if code != http.StatusOK || err != nil || strings.Count(answer, "<nil>\n") != 3 {
					t.Fatalf("%d %q, %v", code, answer, err)
				}
			}
			time.Sleep(time.Minute)
		}
	})
}

// TestSlowReaders: a handler that has something to say is not held up for ever
// by a caller who does not listen.
func TestSlowReaders(t *testing.T) {
	serve(t, func(w http.ResponseWriter, _ *http.Request, done chan<- error) {
		var err error
		for err == nil {
			if _, err = w.Write(make([]byte, 64<<10)); err == nil {
				err = http.NewResponseController(w).Flush()
			}
		}
		done <- err
	}, func(t *testing.T, client *http.Client, done <-chan error) {
		resp, err := client.Get("http://server/")
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("the handler ended: %v", <-done)
		resp.Body.Close()
	})
}

// TestCollect: what is behind sees a request when its body is there, whole and
// unchanged; bodies that do not come hold some of the room, and others theirs.
func TestCollect(t *testing.T) {
	inside := make(chan string, 10)
	h := Collect(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		inside <- fmt.Sprint(len(body), err)
	}), 10*block, nil)
	send := func(address string, body io.Reader) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", body)
		r.RemoteAddr = address + ":1"
		h.ServeHTTP(w, r)
		return w
	}
	for _, size := range []int{0, 1, block - 1, block, block + 1, 4*block + 7} {
		send("a", strings.NewReader(strings.Repeat("x", size)))
		if got, want := <-inside, fmt.Sprint(size, " <nil>"); got != want {
			t.Errorf("%s bytes arrived; want %s", got, want)
		}
	}
	// Readers that have come so far wait for their writers.
	var wg sync.WaitGroup
	var writers []*io.PipeWriter
	for range 5 {
		from, to := io.Pipe()
		writers = append(writers, to)
		wg.Go(func() { send("a", from) })
		to.Write([]byte("x")) // returns once it is read
	}
	if w := send("a", strings.NewReader("x")); w.Code != http.StatusTooManyRequests {
		t.Errorf("one address has more than half of the room: %d", w.Code)
	}
	if w := send("b", strings.NewReader("x")); w.Code != http.StatusOK {
		t.Errorf("another address: %d", w.Code)
	}
	<-inside
	select {
	case got := <-inside:
		t.Errorf("a request went on without its body: %s", got)
	default:
	}
	for _, to := range writers {
		to.CloseWithError(fmt.Errorf("%w after a byte", ErrSlow))
	}
	wg.Wait()
	if w := send("a", strings.NewReader("x")); w.Code != http.StatusOK || <-inside != "1 <nil>" {
		t.Errorf("once the bodies are gone: %d", w.Code)
	}
}

func TestShares(t *testing.T) {
	s := NewShares(1000)
	greedy := func(caller string) (got int) {
		for s.Enter(caller) {
			got++
		}
		return got
	}
	// Whoever comes first has the most, and leaves as much.
	first := greedy("a")
	if first != 500 {
		t.Errorf("one caller got %d", first)
	}
	for _, caller := range []string{"b", "c", "d", "e"} {
		greedy(caller)
	}
	for i := range 15 {
		if !s.Enter(fmt.Sprint(i)) {
			t.Errorf("newcomer %d found no place", i)
		}
	}
	for range first {
		s.Leave("a")
	}
	if greedy("f") == 0 || s.Taken() > 1000 {
		t.Errorf("%d are taken", s.Taken())
	}
	for none, n := NewShares(-1), 0; n < 10; n++ {
		if !none.Enter("a") {
			t.Errorf("there is no limit, and it was %d", n)
		}
	}
}

// TestConnections: one address gets half of the connections, and others still
// get theirs; a place that is left is another's.
func TestConnections(t *testing.T) {
	inner := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	l := Limit(inner, 10, nil)
	accepted := make(chan net.Conn, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- c
		}
	}()
	dial := func(address string) net.Conn {
		ours, theirs := net.Pipe()
		inner.conns <- from{theirs, address}
		return ours
	}
	refused := func(c net.Conn) bool {
		_, err := c.Read(make([]byte, 1))
		return errors.Is(err, io.EOF)
	}
	for range 5 {
		dial("a")
	}
	if !refused(dial("a")) {
		t.Error("one address has more than half")
	}
	for range 3 {
		dial("b")
	}
	dial("c")
	(<-accepted).Close()
	dial("d")
	inner.Close()
	n := 0
	for range accepted {
		n++
	}
	if n != 9 {
		t.Errorf("%d more were accepted; want 9", n)
	}
}

// from is a connection from an address.
type from struct {
	net.Conn
	address string
}

func (f from) RemoteAddr() net.Addr { return address(f.address) }

type address string

func (address) Network() string  { return "test" }
func (a address) String() string { return string(a) + ":1" }
