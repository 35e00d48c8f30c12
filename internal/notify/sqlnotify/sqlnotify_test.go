package sqlnotify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/journal/sqllog/pgtest"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/replica"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

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

func config(t *testing.T, rawURL string) *pgx.ConnConfig {
	t.Helper()
	cfg, err := pgx.ParseConfig(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// server is a replica that is woken through a database.
type server struct {
	*replica.Replica
	source *Source
	woken  *notify.Woken
	log    *logged
}

// serve runs a replica until the test ends. It polls at interval.
func serve(t *testing.T, connect *pgx.ConnConfig, store journal.Store, interval time.Duration) *server {
	t.Helper()
	s := &server{log: &logged{}}
	log := slog.New(slog.NewTextHandler(s.log, nil))
	s.source = New(connect, store.Info().ID, log)
	s.woken = notify.NewWoken(s.source, interval, interval, log)
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

func (s *server) put(t *testing.T, key string) mvcc.Revision {
	t.Helper()
	res, err := s.Propose(t.Context(), &mvcc.Request{Kind: mvcc.Txn, Then: []mvcc.Op{{Kind: mvcc.OpPut, Range: mvcc.KeyRange{Key: key}, Value: []byte("v")}}})
	if err != nil {
		t.Fatal(err)
	}
	return res.Revision
}

// wakes writes at a until a notification of it has come to b.
func wakes(t *testing.T, a, b *server) {
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
func pair(t *testing.T, db *pgtest.Server) (a, b *server) {
	store, connect := memlog.New(memlog.Options{}), config(t, db.URL("postgres"))
	a, b = serve(t, connect, store.Open(), time.Hour), serve(t, connect, store.Open(), time.Hour)
	wakes(t, a, b)
	wakes(t, b, a)
	return a, b
}

func TestOneServerWakesAnother(t *testing.T) {
	a, b := pair(t, pgtest.Shared(t))
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

// TestForgedNotificationsWakeNobody: any user of the database may notify any channel.
func TestForgedNotificationsWakeNobody(t *testing.T) {
	db := pgtest.Shared(t)
	a, b := pair(t, db)
	conn, err := pgx.ConnectConfig(t.Context(), config(t, db.URL("postgres")))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	before := b.woken.Counts()
	for _, payload := range []string{"", " ", "x", "7", "-1 x", "99999999999999999999 x", "0 x", "1e3 x", "9 " + b.source.self, "9 " + strings.Repeat("x", 7900)} {
		if _, err := conn.Exec(t.Context(), "SELECT pg_notify($1, $2)", b.source.channel, payload); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.Exec(t.Context(), "SELECT pg_notify($1, '1 forged')", b.source.channel); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the one that can be read", func() bool { return b.woken.Counts().Received > before.Received })
	if n := b.woken.Counts().Late - before.Late; n != 1 {
		t.Errorf("%d notifications of a slot that is known, want 1", n)
	}
	rev := a.put(t, "after")
	eventually(t, "a's write at b", func() bool { return b.View().Revision() >= rev })
}

// TestDatabaseThatDies: while it is gone the server says so and polls; once it is back,
// notifications come again.
func TestDatabaseThatDies(t *testing.T) {
	db, store := pgtest.Start(t), memlog.New(memlog.Options{})
	connect := config(t, db.URL("postgres"))
	a, b := serve(t, connect, store.Open(), 10*time.Millisecond), serve(t, connect, store.Open(), 10*time.Millisecond)
	wakes(t, a, b)
	db.Kill()
	eventually(t, "word of it", func() bool {
		return strings.Contains(b.log.String(), "notifications failed") && b.woken.Counts().Failed > 0
	})
	rev := a.put(t, "meanwhile")
	eventually(t, "a's write at b, which polls", func() bool { return b.View().Revision() >= rev })
	if err := db.Restart(); err != nil {
		t.Fatal(err)
	}
	wakes(t, a, b)
	if !strings.Contains(b.log.String(), "notifications work again") {
		t.Error("the log does not say that notifications work again")
	}
}

// TestPoolerIsNoticed: a LISTEN that no notification follows is not relied on.
func TestPoolerIsNoticed(t *testing.T) {
	s := New(config(t, pgtest.Shared(t).URL("postgres")), journal.ID{1}, slog.New(slog.DiscardHandler))
	listening, err := s.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer closeConn(listening)
	telling, err := s.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer closeConn(telling)
	if err := s.listen(t.Context(), listening); err != nil {
		t.Fatal(err)
	}
	if err := s.prove(t.Context(), listening, telling); err != nil {
		t.Errorf("with a LISTEN that works: %v", err)
	}
	if _, err := listening.Exec(t.Context(), "UNLISTEN *"); err != nil { // as a pooler does behind one's back
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := s.prove(soon, listening, telling); err == nil || !strings.Contains(err.Error(), "pooler") {
		t.Errorf("without a LISTEN: %v, want a word of poolers", err)
	}
}

// TestCockroachDBIsPolled has the database call itself CockroachDB.
func TestCockroachDBIsPolled(t *testing.T) {
	db := pgtest.Start(t)
	connect := config(t, db.URL("postgres", "search_path=public,pg_catalog"))
	conn, err := pgx.ConnectConfig(t.Context(), connect)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "CREATE FUNCTION public.version() RETURNS TEXT LANGUAGE SQL AS $$ SELECT 'CockroachDB CCL v25.4.0' $$"); err != nil {
		t.Fatal(err)
	}
	store := memlog.New(memlog.Options{})
	a, b := serve(t, connect, store.Open(), 10*time.Millisecond), serve(t, connect, store.Open(), 10*time.Millisecond)
	eventually(t, "word of it", func() bool { return strings.Contains(b.log.String(), errNoNotify.Error()) })
	rev := a.put(t, "k")
	eventually(t, "a's write at b, which polls", func() bool { return b.View().Revision() >= rev })
	if c := b.woken.Counts(); c.Failed != 0 || strings.Contains(b.log.String(), "WARN") {
		t.Errorf("%d failures; the log:\n%s", c.Failed, b.log)
	}
}

// TestRunEnds: Run returns when its context ends, wherever it is.
func TestRunEnds(t *testing.T) {
	for name, rawURL := range map[string]string{"connected": pgtest.Shared(t).URL("postgres"), "nobody there": "postgres://x@/x?host=/nowhere"} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			s := New(config(t, rawURL), journal.ID{1}, slog.New(slog.DiscardHandler))
			ended := make(chan struct{})
			go func() { s.Run(ctx, notify.NewWoken(s, time.Hour, time.Hour, s.log)); close(ended) }()
			time.Sleep(50 * time.Millisecond)
			cancel(errors.New("over"))
			<-ended
		})
	}
}

// FuzzParse: whatever is notified, parse returns, and a slot only with its writer.
func FuzzParse(f *testing.F) {
	f.Add("7 writer")
	f.Add("18446744073709551615 x")
	f.Add("7  two spaces")
	f.Fuzz(func(t *testing.T, payload string) {
		slot, writer := parse(payload)
		if slot != 0 && !strings.HasSuffix(payload, " "+writer) {
			t.Errorf("%q has slot %d of writer %q", payload, slot, writer)
		}
	})
}
