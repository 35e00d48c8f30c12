// Package notifytest runs replicas that notifications wake, for the tests of what brings
// the notifications. It knows none of these sources.
package notifytest

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/replica"
)

// Server is a replica that a source wakes.
type Server struct {
	*replica.Replica
	Woken *notify.Woken
	Log   *Log
	Stop  func() // ends the replica; the end of the test calls it too
}

// Log is a server's log. It is safe for concurrent use.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// String returns all that was logged.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// Serve runs a replica until the test ends, or Stop. The replica polls at interval, and is
// woken by the source that open returns.
func Serve(t *testing.T, store journal.Store, interval time.Duration, open func(*slog.Logger) notify.Source) *Server {
	t.Helper()
	s := &Server{Log: &Log{}}
	log := slog.New(slog.NewTextHandler(s.Log, nil))
	s.Woken = notify.NewWoken(open(log), interval, interval, log)
	s.Replica = replica.New(replica.Config{Store: store, Notifier: s.Woken, Logger: log})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	s.Stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("replica ended with %v", err)
		}
	})
	t.Cleanup(s.Stop)
	<-s.Ready()
	return s
}

// Put writes a key, and returns the revision of the write.
func (s *Server) Put(t *testing.T, key string) mvcc.Revision {
	t.Helper()
	res, err := s.Propose(t.Context(), &mvcc.Request{Kind: mvcc.Txn, Then: []mvcc.Op{{Kind: mvcc.OpPut, Range: mvcc.KeyRange{Key: key}, Value: []byte("v")}}})
	if err != nil {
		t.Fatal(err)
	}
	return res.Revision
}

// Has waits until the server has a revision, by whatever way it comes.
func (s *Server) Has(t *testing.T, rev mvcc.Revision) {
	t.Helper()
	Eventually(t, fmt.Sprintf("revision %d", rev), func() bool { return s.View().Revision() >= rev })
}

// Eventually waits until something holds.
func Eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never came: %s", what)
		}
	}
}

// Wakes writes at a until a notification of it has come to b.
func Wakes(t *testing.T, a, b *Server) {
	t.Helper()
	before := b.Woken.Counts().Received
	Eventually(t, "a notification", func() bool {
		a.Put(t, "k")
		time.Sleep(20 * time.Millisecond)
		return b.Woken.Counts().Received > before
	})
}

// WakesEachOther checks that a's writes come to b, and b's to a, and that no notification
// of its own comes back to a. Both must poll so seldom that only notifications wake them.
func WakesEachOther(t *testing.T, a, b *Server) {
	t.Helper()
	own := a.Woken.Counts().Received
	for i := range 5 {
		b.Has(t, a.Put(t, fmt.Sprint("k", i)))
	}
	if n := a.Woken.Counts().Received - own; n > 0 {
		t.Errorf("%d of a's own notifications come back to it", n)
	}
	a.Has(t, b.Put(t, "l"))
}
