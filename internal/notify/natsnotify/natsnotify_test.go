package natsnotify

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/journal/natslog/natstest"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/replica"
)

const subject = "xbernetes.hint.00"

// logged is what a server logged. It is safe for concurrent use.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// connects returns how to connect to a NATS server.
func connects(host string) func(...nats.Option) (*nats.Conn, error) {
	return func(options ...nats.Option) (*nats.Conn, error) { return nats.Connect("nats://"+host, options...) }
}

// peer is a replica that is woken through NATS.
type peer struct {
	*replica.Replica
	woken *notify.Woken
	log   *logged
}

// serve runs a replica until the test ends. It polls at interval.
func serve(t *testing.T, host string, store journal.Store, interval time.Duration) *peer {
	t.Helper()
	s := &peer{log: &logged{}}
	log := slog.New(slog.NewTextHandler(s.log, nil))
	s.woken = notify.NewWoken(New(Config{Connect: connects(host), Subject: subject, Logger: log}), interval, interval, log)
	s.Replica = replica.New(replica.Config{Store: store, Notifier: s.woken, Logger: log})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("replica ended with %v", err)
		}
	})
	<-s.Ready()
	return s
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never came: %s", what)
		}
	}
}

func (s *peer) put(t *testing.T, key string) mvcc.Revision {
	t.Helper()
	res, err := s.Propose(t.Context(), &mvcc.Request{Kind: mvcc.Txn, Then: []mvcc.Op{{Kind: mvcc.OpPut, Range: mvcc.KeyRange{Key: key}, Value: []byte("v")}}})
	if err != nil {
		t.Fatal(err)
	}
	return res.Revision
}

// wakes writes at a until a notification of it has come to b.
func wakes(t *testing.T, a, b *peer) {
	t.Helper()
	before := b.woken.Counts().Received
	eventually(t, "a notification", func() bool {
		a.put(t, "k")
		time.Sleep(20 * time.Millisecond)
		return b.woken.Counts().Received > before
	})
}

// pair is two servers of one journal that poll once an hour, so that only notifications
// wake them.
func pair(t *testing.T, host string) (a, b *peer) {
	store := memlog.New(memlog.Options{})
	a, b = serve(t, host, store.Open(), time.Hour), serve(t, host, store.Open(), time.Hour)
	wakes(t, a, b)
	wakes(t, b, a)
	return a, b
}

func TestOneServerWakesAnother(t *testing.T) {
	a, b := pair(t, natstest.Start(t, nil).Host())
	own := a.woken.Counts().Received
	for i := range 5 {
		rev := a.put(t, fmt.Sprint("k", i))
		eventually(t, "a's write at b", func() bool { return b.View().Revision() >= rev })
	}
	if n := a.woken.Counts().Received - own; n > 0 {
		t.Errorf("%d of a's own notifications come back to it", n)
	}
	rev := b.put(t, "l")
	eventually(t, "b's write at a", func() bool { return a.View().Revision() >= rev })
}

// TestForgedNotificationsWakeNobody sends them as a user who may publish to the subject.
func TestForgedNotificationsWakeNobody(t *testing.T) {
	host := natstest.Start(t, nil).Host()
	a, b := pair(t, host)
	conn, err := nats.Connect("nats://" + host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	before := b.woken.Counts()
	for _, payload := range []string{"", " ", "x", "-1", "99999999999999999999", "0", "1e3", strings.Repeat("9", 2*maxWaitingBytes)} {
		if err := conn.Publish(subject, []byte(payload)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "one that can be read", func() bool {
		if err := conn.Publish(subject, []byte("1")); err != nil {
			t.Fatal(err)
		}
		return b.woken.Counts().Received > before.Received
	})
	if c := b.woken.Counts(); c.Received-c.Late != before.Received-before.Late {
		t.Errorf("a notification that cannot be read counts as one of an unknown slot: %+v before, %+v now", before, c)
	}
	rev := a.put(t, "after")
	eventually(t, "a's write at b", func() bool { return b.View().Revision() >= rev })
}

// TestServerThatDies: while it is gone the replica says so and polls; once it is back,
// notifications come again.
func TestServerThatDies(t *testing.T) {
	first, store := natstest.Start(t, nil), memlog.New(memlog.Options{})
	host := first.Host()
	a, b := serve(t, host, store.Open(), 10*time.Millisecond), serve(t, host, store.Open(), 10*time.Millisecond)
	wakes(t, a, b)
	first.Stop()
	eventually(t, "word of it", func() bool {
		return strings.Contains(b.log.String(), "notifications failed") && b.woken.Counts().Failed > 0
	})
	rev := a.put(t, "meanwhile")
	eventually(t, "a's write at b, which polls", func() bool { return b.View().Revision() >= rev })
	natstest.Start(t, func(o *server.Options) { o.Port = first.Options.Port })
	wakes(t, a, b)
	if !strings.Contains(b.log.String(), "notifications work again") {
		t.Error("the log does not say that notifications work again")
	}
}

// TestMissingRight: a user who may not subscribe, or not publish, is told what is missing.
func TestMissingRight(t *testing.T) {
	nobody, other := &server.SubjectPermission{Deny: []string{"xbernetes.hint.>"}}, &server.SubjectPermission{Allow: []string{">"}}
	for name, rights := range map[string]*server.Permissions{
		"Subscription": {Subscribe: nobody, Publish: other},
		"Publish":      {Subscribe: other, Publish: nobody},
	} {
		t.Run(name, func(t *testing.T) {
			host := natstest.Start(t, func(o *server.Options) {
				o.Users = []*server.User{{Username: "party", Password: "party", Permissions: rights}}
			}).Host()
			store := memlog.New(memlog.Options{})
			a := serve(t, "party:party@"+host, store.Open(), 10*time.Millisecond)
			eventually(t, "word of it", func() bool {
				a.put(t, "k")
				return strings.Contains(a.log.String(), "lacks a right") && strings.Contains(a.log.String(), "for "+name)
			})
			if strings.Contains(a.log.String(), "party") {
				t.Errorf("the log has the credentials:\n%s", a.log)
			}
		})
	}
}

// FuzzParse: whatever is published, parse returns; it reads no more than a number.
func FuzzParse(f *testing.F) {
	f.Add([]byte("7"))
	f.Add([]byte("18446744073709551615"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		if slot := parse(payload); slot != 0 && strings.TrimLeft(string(payload), "0") != fmt.Sprint(uint64(slot)) {
			t.Errorf("%q is slot %d", payload, slot)
		}
	})
}
