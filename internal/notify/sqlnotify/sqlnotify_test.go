package sqlnotify

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/journal/sqllog/pgtest"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/notify/notifytest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

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
	*notifytest.Server
	source *Source
}

// serve runs a replica until the test ends. It polls at interval.
func serve(t *testing.T, connect *pgx.ConnConfig, store journal.Store, interval time.Duration) *server {
	t.Helper()
	s := &server{}
	s.Server = notifytest.Serve(t, store, interval, func(log *slog.Logger) notify.Source {
		s.source = New(connect, store.Info().ID, log)
		return s.source
	})
	return s
}

// pair is two servers of one journal that poll once an hour, so that only notifications
// wake them.
func pair(t *testing.T, db *pgtest.Server) (a, b *server) {
	store, connect := memlog.New(memlog.Options{}), config(t, db.URL("postgres"))
	a, b = serve(t, connect, store.Open(), time.Hour), serve(t, connect, store.Open(), time.Hour)
	notifytest.Wakes(t, a.Server, b.Server)
	notifytest.Wakes(t, b.Server, a.Server)
	return a, b
}

func TestOneServerWakesAnother(t *testing.T) {
	a, b := pair(t, pgtest.Shared(t))
	notifytest.WakesEachOther(t, a.Server, b.Server)
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
	before := b.Woken.Counts()
	for _, payload := range []string{"", " ", "x", "7", "-1 x", "99999999999999999999 x", "0 x", "1e3 x", "9 " + b.source.self, "9 " + strings.Repeat("x", 7900)} {
		if _, err := conn.Exec(t.Context(), "SELECT pg_notify($1, $2)", b.source.channel, payload); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.Exec(t.Context(), "SELECT pg_notify($1, '1 forged')", b.source.channel); err != nil {
		t.Fatal(err)
	}
	notifytest.Eventually(t, "the one that can be read", func() bool { return b.Woken.Counts().Received > before.Received })
	if n := b.Woken.Counts().Late - before.Late; n != 1 {
		t.Errorf("%d notifications of a slot that is known, want 1", n)
	}
	b.Has(t, a.Put(t, "after"))
}

// TestDatabaseThatDies: while it is gone the server says so and polls; once it is back,
// notifications come again.
func TestDatabaseThatDies(t *testing.T) {
	db, store := pgtest.Start(t), memlog.New(memlog.Options{})
	connect := config(t, db.URL("postgres"))
	a, b := serve(t, connect, store.Open(), 10*time.Millisecond), serve(t, connect, store.Open(), 10*time.Millisecond)
	notifytest.Wakes(t, a.Server, b.Server)
	db.Kill()
	notifytest.Eventually(t, "word of it", func() bool {
		return strings.Contains(b.Log.String(), "notifications failed") && b.Woken.Counts().Failed > 0
	})
	b.Has(t, a.Put(t, "meanwhile"))
	if err := db.Restart(); err != nil {
		t.Fatal(err)
	}
	notifytest.Wakes(t, a.Server, b.Server)
	if !strings.Contains(b.Log.String(), "notifications work again") {
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
	notifytest.Eventually(t, "word of it", func() bool { return strings.Contains(b.Log.String(), errNoNotify.Error()) })
	b.Has(t, a.Put(t, "k"))
	if c := b.Woken.Counts(); c.Failed != 0 || strings.Contains(b.Log.String(), "WARN") {
		t.Errorf("%d failures; the log:\n%s", c.Failed, b.Log)
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
