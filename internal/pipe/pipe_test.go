package pipe_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/nettest"

	"github.com/xbernetes/xbernetes/internal/pipe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect returns both ends of a new connection.
func connect(t testing.TB, buffer int) (client, server net.Conn) {
	t.Helper()
	l := pipe.Listen(buffer)
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	client, err := l.Dial(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	server = <-accepted
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// TestConn runs the tests that golang.org/x/net has for every net.Conn.
func TestConn(t *testing.T) {
	for name, buffer := range map[string]int{"1 KiB": 1 << 10, "32 KiB": 32 << 10} {
		t.Run(name, func(t *testing.T) {
			nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
				c1, c2 = connect(t, buffer)
				return c1, c2, func() { c1.Close(); c2.Close() }, nil
			})
		})
	}
}

// TestOrder: bytes arrive once and in their order, whatever the sizes of the
// writes, of the reads and of the ring.
func TestOrder(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 50 {
		client, server := connect(t, 1+r.IntN(100))
		sent := make([]byte, r.IntN(5000))
		for i := range sent {
			sent[i] = byte(r.Uint32())
		}
		sizes := make([]int, len(sent)+1)
		for i := range sizes {
			sizes[i] = 1 + r.IntN(300)
		}
		go func() {
			for i, rest := 0, sent; len(rest) > 0; i++ {
				n := min(sizes[i], len(rest))
				if _, err := client.Write(rest[:n]); err != nil {
					t.Error(err)
				}
				rest = rest[n:]
			}
			client.Close()
		}()
		var got bytes.Buffer
		if _, err := io.CopyBuffer(&got, struct{ io.Reader }{server}, make([]byte, 1+r.IntN(200))); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), sent) {
			t.Fatalf("%d bytes were sent, and others arrived", len(sent))
		}
	}
}

// TestCloseLeavesWhatWasWritten: the other end reads it, then io.EOF, and cannot
// write any more.
func TestCloseLeavesWhatWasWritten(t *testing.T) {
	client, server := connect(t, 16)
	if _, err := client.Write([]byte("last words")); err != nil {
		t.Fatal(err)
	}
	client.Close()
	if got, err := io.ReadAll(server); err != nil || string(got) != "last words" {
		t.Errorf("read %q, %v", got, err)
	}
	if _, err := server.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a write to an end that is closed: %v", err)
	}
}

// TestDeadlineMoves: a deadline that was put off does not end a read at its
// first time.
func TestDeadlineMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := connect(t, 16)
		start := time.Now()
		client.SetReadDeadline(start.Add(time.Second))
		client.SetReadDeadline(start.Add(time.Minute))
		_, err := client.Read(make([]byte, 1))
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() || time.Since(start) != time.Minute {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		server.Close()
	})
}

// TestDialEnds: nobody waits for a listener that takes no more connections.
func TestDialEnds(t *testing.T) {
	l := pipe.Listen(16)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Dial(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	l.Close()
	if _, err := l.Dial(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("at a closed listener: %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept at a closed listener: %v", err)
	}
}
