package sqllog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/sqllog/pgtest"
)

func open(t testing.TB, cfg Config) *Log {
	t.Helper()
	l, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// exec sends a statement as the server's administrator.
func exec(t testing.TB, l *Log, statement string, args ...any) {
	t.Helper()
	if _, err := l.db.pool.Exec(t.Context(), l.db.names.Replace(statement), args...); err != nil {
		t.Fatal(err)
	}
}

// A lossy proxy stands between a journal and its server. While lose is set, it ends a
// connection as soon as the server says that a row was inserted, so that the answer is
// lost.
type lossy struct {
	dir  string
	lose atomic.Bool
}

func newLossy(t *testing.T, server *pgtest.Server) *lossy {
	t.Helper()
	p := &lossy{dir: t.TempDir()}
	lis, err := net.Listen("unix", filepath.Join(p.dir, ".s.PGSQL.5432"))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() { _ = lis.Close(); all.Wait() })
	all.Go(func() {
		for {
			client, err := lis.Accept()
			if err != nil {
				return
			}
			all.Go(func() { p.carry(client, server.Socket()) })
		}
	})
	return p
}

func (p *lossy) carry(client net.Conn, to string) {
	defer client.Close()
	server, err := net.Dial("unix", to)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	buf := make([]byte, 1<<16)
	for {
		n, err := server.Read(buf)
		if err != nil || p.lose.Load() && bytes.Contains(buf[:n], []byte("INSERT 0 1")) {
			return
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}

// TestLostAnswers: whether the answer to an INSERT is lost after it was carried out,
// is unknown to the caller, who finds out by the same bytes once more.
func TestLostAnswers(t *testing.T) {
	server := pgtest.Shared(t)
	p := newLossy(t, server)
	l := open(t, config(t, fmt.Sprintf("postgres://postgres@/postgres?host=%s&table=lost", p.dir)))
	for slot := journal.Slot(1); slot <= 5; slot++ {
		p.lose.Store(true)
		err := l.Append(t.Context(), slot, []byte("mine"))
		p.lose.Store(false)
		if err == nil || errors.Is(err, journal.ErrTaken) || errors.Is(err, journal.ErrAhead) {
			t.Fatalf("Append(%d) whose answer is lost = %v, want an unknown outcome", slot, err)
		}
		rec, err := l.Peek(t.Context(), slot)
		if err != nil || string(rec) != "mine" {
			t.Fatalf("Peek(%d) = %q, %v: the insert was not carried out, so that nothing is tested", slot, rec, err)
		}
		if err := l.Append(t.Context(), slot, []byte("mine")); err != nil {
			t.Errorf("Append(%d) of the same bytes = %v", slot, err)
		}
		if err := l.Append(t.Context(), slot, []byte("another's")); !errors.Is(err, journal.ErrTaken) {
			t.Errorf("Append(%d) of other bytes = %v, want %v", slot, err, journal.ErrTaken)
		}
	}
}

// TestKills: whatever was acknowledged before the server is killed is there after it,
// at the slot that was acknowledged.
func TestKills(t *testing.T) {
	server := pgtest.Start(t)
	l := open(t, config(t, server.URL("postgres")))
	acked := acknowledged{records: map[journal.Slot]string{}}
	for kill := range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		var writers sync.WaitGroup
		for w := range 4 {
			writers.Go(func() { acked.write(ctx, l, fmt.Sprint(kill, w)) })
		}
		time.Sleep(200 * time.Millisecond)
		server.Kill()
		cancel()
		writers.Wait()
		if err := server.Restart(); err != nil {
			t.Fatal(err)
		}
		l.db.pool.Reset() // its connections are of the server before
		acked.check(t, l)
	}
	acked.enough(t, l)
}

// acknowledged are the records that a journal acknowledged to writers.
type acknowledged struct {
	mu      sync.Mutex
	records map[journal.Slot]string
}

// write appends records to slot after slot until ctx ends. A slot whose outcome is unknown
// gets the same bytes again.
func (a *acknowledged) write(ctx context.Context, l *Log, name string) {
	for slot := journal.Slot(1); ctx.Err() == nil; {
		rec := fmt.Sprint(name, slot)
		err := l.Append(ctx, slot, []byte(rec))
		if err == nil {
			a.mu.Lock()
			a.records[slot] = rec
			a.mu.Unlock()
		}
		if err == nil || errors.Is(err, journal.ErrTaken) {
			slot++
		}
	}
}

// check looks for each record at its slot. Nobody may be writing.
func (a *acknowledged) check(t *testing.T, l *Log) {
	t.Helper()
	for slot, want := range a.records {
		if rec, err := l.Peek(t.Context(), slot); err != nil || string(rec) != want {
			t.Fatalf("slot %d has %q, %v; acknowledged was %q", slot, rec, err, want)
		}
	}
}

// enough fails the test if there are too few records for it to tell anything.
func (a *acknowledged) enough(t *testing.T, l *Log) {
	t.Helper()
	records, err := l.Read(t.Context(), 1, 1<<20)
	if err != nil || len(records) < len(a.records) || len(a.records) < 10 {
		t.Fatalf("%d records can be read (%v), %d were acknowledged", len(records), err, len(a.records))
	}
	t.Logf("%d of %d records were acknowledged", len(a.records), len(records))
}

// TestFailOver: a synchronous standby that takes over from a server that was killed has all
// that was acknowledged, and the journal goes on there, at the same URL.
func TestFailOver(t *testing.T) {
	primary := pgtest.Start(t)
	standby := primary.Follower(t)
	l := open(t, config(t, fmt.Sprintf("postgres://postgres@/postgres?host=%s,%s&target_session_attrs=read-write", primary.Dir(), standby.Dir())))
	acked := acknowledged{records: map[journal.Slot]string{}}
	var writers sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for w := range 4 {
		writers.Go(func() { acked.write(ctx, l, fmt.Sprint("before", w)) })
	}
	time.Sleep(500 * time.Millisecond)
	primary.Kill()
	cancel()
	writers.Wait()
	standby.Promote(t)
	l.db.pool.Reset() // its connections are of the server before
	acked.check(t, l)
	ctx, cancel = context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	before := len(acked.records)
	acked.write(ctx, l, "after")
	if len(acked.records) == before {
		t.Error("nothing can be written after the fail-over")
	}
	acked.check(t, l)
	acked.enough(t, l)
}

// TestOpenTransaction: while somebody else's transaction has filled a slot and is not
// committed, an Append to the slot has no outcome. Once it is rolled back, the same
// bytes are stored.
func TestOpenTransaction(t *testing.T) {
	l := open(t, fresh(t))
	other, err := l.db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Rollback(context.Background()) }()
	if _, err := other.Exec(t.Context(), l.db.names.Replace("INSERT INTO {slots} (slot, record) VALUES (1, 'other')")); err != nil {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := l.Append(soon, 1, []byte("mine")); err == nil || errors.Is(err, journal.ErrTaken) {
		t.Fatalf("Append = %v, want an unknown outcome", err)
	}
	if rec, err := l.Peek(t.Context(), 1); rec != nil || err != nil {
		t.Errorf("Peek = %q, %v: what is not committed is shown", rec, err)
	}
	if err := other.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(t.Context(), 1, []byte("mine")); err != nil {
		t.Errorf("Append after the other transaction's end = %v", err)
	}
}

// TestLateInsert: an INSERT that is under way while its slot is trimmed fills no
// deleted slot. A trigger holds it up after it has read the floor.
func TestLateInsert(t *testing.T) {
	l := open(t, fresh(t))
	const slots = 20
	for slot := journal.Slot(1); slot <= slots; slot++ {
		if err := l.Append(t.Context(), slot, []byte("first")); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, l, `CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.record = 'late'::BYTEA THEN PERFORM pg_advisory_xact_lock(7); END IF; RETURN NEW; END $$`)
	exec(t, l, `CREATE TRIGGER late BEFORE INSERT ON {slots} FOR EACH ROW EXECUTE FUNCTION late()`)
	gate, err := l.db.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Release()
	if _, err := gate.Exec(t.Context(), "SELECT pg_advisory_lock(7)"); err != nil {
		t.Fatal(err)
	}
	late := make(chan error, 1)
	go func() { late <- l.Append(t.Context(), 5, []byte("late")) }()
	waiting := false
	for !waiting {
		if err := l.db.row(t.Context(), "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)", nil, &waiting); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := l.Trim(t.Context(), slots+1); err != nil || n != slots {
		t.Fatal(n, err)
	}
	if _, err := gate.Exec(t.Context(), "SELECT pg_advisory_unlock(7)"); err != nil {
		t.Fatal(err)
	}
	if err := <-late; err == nil {
		t.Error("an append to a slot that was trimmed meanwhile was acknowledged")
	}
	var left int
	if err := l.db.row(t.Context(), "SELECT count(*) FROM {slots}", nil, &left); err != nil || left != 0 {
		t.Errorf("%d rows are left below the floor (%v)", left, err)
	}
}

// TestWhatIsRefused: a database that cannot be relied on, or that this user may not
// use, is refused in a sentence, and nothing is written.
func TestWhatIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		given func(*testing.T) Config
		want  string
	}{
		"no fsync": {func(t *testing.T) Config { return config(t, pgtest.Start(t, "fsync=off").URL("postgres")) }, "fsync = off"},
		"a replica": {func(t *testing.T) Config {
			s := pgtest.Start(t)
			s.Standby(t)
			return config(t, s.URL("postgres"))
		}, "not a read replica"},
		"no sync":        {as("ALTER ROLE {role} SET synchronous_commit = off"), "synchronous_commit = off"},
		"read-only":      {as("ALTER ROLE {role} SET default_transaction_read_only = on"), "takes no writes"},
		"no rights":      {as("GRANT SELECT ON {meta} TO {role}; DELETE FROM {meta}"), "lacks a right"},
		"no tables":      {as("REVOKE CREATE ON SCHEMA public FROM PUBLIC; DROP TABLE {meta}, {slots}, {blobs}"), "GRANT CREATE ON SCHEMA"},
		"no such user":   {as("ALTER ROLE {role} RENAME TO gone_{role}"), "does not let the user in"},
		"may not enter":  {as("ALTER ROLE {role} NOLOGIN"), "does not let the user in"},
		"is not there":   {func(t *testing.T) Config { return config(t, "postgres://xb@localhost:"+closedPort(t)+"/state") }, "check that it runs, and its host and port"},
		"no database":    {func(t *testing.T) Config { return config(t, pgtest.Shared(t).URL("missing")) }, `database "missing" does not exist`},
		"newer format":   {as("UPDATE {meta} SET format = 99; ALTER ROLE {role} SUPERUSER"), journal.ErrNewerFormat.Error() + " (99; this xb reads 3); use the xb that wrote it, or a newer one"},
		"older format":   {as("UPDATE {meta} SET format = 1; ALTER ROLE {role} SUPERUSER"), journal.ErrOlderFormat.Error() + " (1; this xb reads 3); use the xb that wrote it"},
		"wrong password": {func(t *testing.T) Config { return asked(t, "hunter2") }, "does not let the user in; correct the user"},
		"has expired":    {func(t *testing.T) Config { return asked(t, "secret") }, "does not let the user in; correct the user"},
		"lost its meta":  {as("DELETE FROM {meta}; ALTER ROLE {role} SUPERUSER"), journal.ErrCorrupt.Error()},
		"no key":         {as("ALTER TABLE {slots} DROP CONSTRAINT {slots}_pkey; DELETE FROM {meta}; DELETE FROM {slots}; ALTER ROLE {role} SUPERUSER"), "no unique"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := test.given(t)
			before := contents(t, cfg)
			l, err := Open(t.Context(), cfg)
			if err == nil {
				_ = l.Close()
				t.Fatal("it is accepted")
			}
			if !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%v\nwant %q in it, in one line", err, test.want)
			}
			if after := contents(t, cfg); after != before {
				t.Errorf("the database held %s before, and holds %s", before, after)
			}
		})
	}
}

// closedPort is a port at which nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return port
}

// asked is a journal on a server that asks its users for passwords, with this password for
// a user whose own, secret, has expired.
func asked(t *testing.T, password string) Config {
	s := pgtest.Start(t)
	l := open(t, config(t, s.URL("postgres")))
	exec(t, l, "CREATE ROLE late LOGIN PASSWORD 'secret' VALID UNTIL '2020-01-01'")
	exec(t, l, "COPY (SELECT 'local all late scram-sha-256' UNION ALL SELECT 'local all all trust') TO PROGRAM 'cat > pg_hba.conf'")
	s.Kill()
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	cfg := config(t, s.URL("postgres"))
	cfg.Pool.ConnConfig.User, cfg.Pool.ConnConfig.Password = "late", password
	return cfg
}

// contents is what the tables of the journal hold; "" if there are none.
func contents(t *testing.T, cfg Config) (all string) {
	t.Helper()
	administrator := cfg.Pool.ConnConfig.Copy()
	administrator.User = "postgres"
	c, err := pgx.ConnectConfig(t.Context(), administrator)
	if isCode(err, "3D000") || errors.Is(err, syscall.ECONNREFUSED) { // there is no such database, or server
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	for _, table := range []string{"_meta", "_slots", "_blobs"} {
		var rows string
		err := c.QueryRow(t.Context(), "SELECT coalesce(string_agg(held::text, ';' ORDER BY held::text), 'no row') FROM "+cfg.Table+table+" held").Scan(&rows)
		if err != nil && !isCode(err, undefinedTable) {
			t.Fatal(err)
		}
		all += rows
	}
	return all
}

// as makes a journal with one record, and a role that opens it, after statements.
func as(statements string) func(*testing.T) Config {
	return func(t *testing.T) Config {
		cfg := fresh(t)
		l := open(t, cfg)
		if err := l.Append(t.Context(), 1, []byte("x")); err != nil {
			t.Fatal(err)
		}
		role := "user_" + cfg.Table
		exec(t, l, "CREATE ROLE "+role+" LOGIN")
		for statement := range strings.SplitSeq(strings.ReplaceAll(statements, "{role}", role), "; ") {
			exec(t, l, statement)
		}
		cfg.Pool = cfg.Pool.Copy()
		cfg.Pool.ConnConfig.User = role
		return cfg
	}
}

// TestSizesAreBounded: what a party has put into the tables past the driver is not
// fetched if it is too large.
func TestSizesAreBounded(t *testing.T) {
	l := open(t, fresh(t))
	exec(t, l, "INSERT INTO {slots} (slot, record) SELECT 1, repeat('x', $1::INT)::BYTEA", maxRecord+1)
	if _, err := l.Read(t.Context(), 1, 1); !errors.Is(err, journal.ErrCorrupt) {
		t.Errorf("Read = %v, want %v", err, journal.ErrCorrupt)
	}
	if _, err := l.Peek(t.Context(), 1); !errors.Is(err, journal.ErrCorrupt) {
		t.Errorf("Peek = %v, want %v", err, journal.ErrCorrupt)
	}
	exec(t, l, "INSERT INTO {blobs} (name, data) SELECT 'a'::BYTEA, repeat('x', $1::INT)::BYTEA", journal.MaxBlob+1)
	if _, err := l.GetBlob(t.Context(), "a"); !errors.Is(err, journal.ErrCorrupt) {
		t.Errorf("GetBlob = %v, want %v", err, journal.ErrCorrupt)
	}
	exec(t, l, "INSERT INTO {blobs} (name, data) SELECT repeat('b', $1::INT)::BYTEA, ''", maxName+1)
	if names, err := l.ListBlobs(t.Context(), ""); err != nil || len(names) != 1 {
		t.Errorf("ListBlobs = %d names, %v", len(names), err)
	}
}

// TestRights: the rights that README.md lists are enough for what it says.
func TestRights(t *testing.T) {
	cfg := fresh(t)
	owner := open(t, cfg)
	exec(t, owner, "CREATE ROLE reader LOGIN")
	exec(t, owner, "GRANT SELECT ON {meta}, {slots}, {blobs} TO reader")
	exec(t, owner, "CREATE ROLE writer LOGIN")
	exec(t, owner, "GRANT SELECT ON {meta} TO writer")
	exec(t, owner, "GRANT SELECT, INSERT ON {slots} TO writer")
	exec(t, owner, "GRANT SELECT, INSERT, UPDATE, DELETE ON {blobs} TO writer")
	by := func(user string, readOnly bool) *Log {
		cfg := cfg
		cfg.Pool = cfg.Pool.Copy()
		cfg.Pool.ConnConfig.User, cfg.ReadOnly = user, readOnly
		return open(t, cfg)
	}
	writer := by("writer", false)
	if err := writer.Append(t.Context(), 1, []byte("x")); err != nil {
		t.Error(err)
	}
	if err := writer.PutBlob(t.Context(), "a/b", []byte("x")); err != nil {
		t.Error(err)
	}
	if err := writer.DeleteBlob(t.Context(), "a/b"); err != nil {
		t.Error(err)
	}
	if _, err := writer.Trim(t.Context(), 2); err == nil || !strings.Contains(err.Error(), "lacks a right") {
		t.Errorf("a writer trims: %v", err)
	}
	if _, err := writer.db.change(t.Context(), "UPDATE {slots} SET record = 'y'"); !isCode(err, insufficientRights) {
		t.Errorf("a writer changes a record: %v", err)
	}
	reader := by("reader", true)
	if records, err := reader.Read(t.Context(), 1, 10); err != nil || len(records) != 1 {
		t.Error(records, err)
	}
	if err := reader.Append(t.Context(), 2, []byte("x")); err == nil {
		t.Error("a reader appends")
	}
	if n, err := owner.Trim(t.Context(), 2); err != nil || n != 1 {
		t.Error(n, err)
	}
}
