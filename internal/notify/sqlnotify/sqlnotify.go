// Package sqlnotify brings hints to a replica by PostgreSQL's LISTEN, and sends those of
// the replica by NOTIFY, over two connections of its own. It never reads a table, and
// never decides what a hint is worth.
package sqlnotify

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/notify"
)

const (
	// answering is how long the database may take to answer.
	answering = 10 * time.Second
	// quiet is after how long without a hint the connection is tried: that of a
	// database that is gone stays silent, too.
	quiet = 20 * time.Second
	// maxPayload is the length of the longest payload that is read, in bytes: a
	// slot, a space, and a name. The database sends 8,000 at most.
	maxPayload = 20 + 1 + 26
)

// errNoNotify: the database has no notifications.
var errNoNotify = errors.New("CockroachDB has no LISTEN and NOTIFY")

// Source is a server's place at a channel. It implements notify.Source.
type Source struct {
	*notify.Outbox
	connect *pgx.ConnConfig
	channel string // has the journal's id, so that no hint of another journal comes
	self    string // the name that this server gives itself in payloads
	log     *slog.Logger
}

var _ notify.Source = (*Source)(nil)

// New returns a source for the journal id in the database that connect leads to. It
// connects when Run runs. log is told when notifications stop or come back, and why.
func New(connect *pgx.ConnConfig, id journal.ID, log *slog.Logger) *Source {
	connect = connect.Copy()
	if connect.ConnectTimeout == 0 {
		connect.ConnectTimeout = answering
	}
	connect.RuntimeParams["application_name"] = "xbernetes notifications"
	connect.RuntimeParams["statement_timeout"] = strconv.FormatInt(answering.Milliseconds(), 10)
	connect.RuntimeParams["synchronous_commit"] = "off" // a hint need not be on the disk
	return &Source{
		Outbox: notify.NewOutbox(), connect: connect, channel: "xbernetes_" + id.String(),
		self: rand.Text(), log: log,
	}
}

// Run implements notify.Source. If the database has no notifications, it says so once and
// waits for the end.
func (s *Source) Run(ctx context.Context, to *notify.Woken) {
	trouble := notify.Trouble{Log: s.log, Means: "notifications neither come nor go; polling"}
	for {
		err := s.session(ctx, func() { trouble.Note(ctx, nil); to.Up() }, to.Heard)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errNoNotify) {
			s.log.Info("the journal is polled", "reason", err)
			return
		}
		to.Down()
		trouble.Note(ctx, err)
		if trouble.Pause(ctx) != nil {
			return
		}
	}
}

// session sends and receives until something fails. It calls up once it has seen that a
// notification comes through.
func (s *Source) session(ctx context.Context, up func(), heard func(journal.Slot)) error {
	listening, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer closeConn(listening)
	if err := s.listen(ctx, listening); err != nil {
		return err
	}
	telling, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer closeConn(telling)
	if err := s.prove(ctx, listening, telling); err != nil {
		return err
	}
	up()
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return s.receive(ctx, listening, heard) })
	both.Go(func() error { return s.send(ctx, telling) })
	return both.Wait()
}

func (s *Source) open(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, s.connect)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	return conn, nil
}

// closeConn says good-bye, if that takes no longer than a moment.
func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // it is gone in any case
}

func (s *Source) listen(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, answering)
	defer cancel()
	var version string
	if err := conn.QueryRow(ctx, "SELECT version()").Scan(&version); err != nil {
		return fmt.Errorf("ask for the database's version: %w", err)
	}
	if strings.Contains(version, "CockroachDB") {
		return errNoNotify
	}
	if _, err := conn.Exec(ctx, "LISTEN "+s.channel); err != nil {
		return fmt.Errorf("listen at channel %s: %w", s.channel, err)
	}
	return nil
}

// prove sends a notification of no slot to this server itself. A pooler that gives each
// statement another connection takes a LISTEN, and never brings a notification.
func (s *Source) prove(ctx context.Context, listening, telling *pgx.Conn) error {
	if err := s.tell(ctx, telling, 0); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answering)
	defer cancel()
	for {
		n, err := listening.WaitForNotification(ctx)
		if err != nil {
			return fmt.Errorf("a notification to this server itself did not come back: %w; let the journal URL lead to the database past any pooler, or to one that keeps sessions", err)
		}
		if _, writer := parse(n.Payload); writer == s.self {
			return nil
		}
	}
}

func (s *Source) send(ctx context.Context, conn *pgx.Conn) error {
	for {
		slot, err := s.Take(ctx)
		if err != nil {
			return err
		}
		if err := s.tell(ctx, conn, slot); err != nil {
			return err
		}
	}
}

func (s *Source) tell(ctx context.Context, conn *pgx.Conn, slot journal.Slot) error {
	ctx, cancel := context.WithTimeout(ctx, answering)
	defer cancel()
	payload := strconv.FormatUint(uint64(slot), 10) + " " + s.self
	if _, err := conn.Exec(ctx, "SELECT pg_notify($1, $2)", s.channel, payload); err != nil {
		return fmt.Errorf("notify channel %s: %w", s.channel, err)
	}
	return nil
}

func (s *Source) receive(ctx context.Context, conn *pgx.Conn, heard func(journal.Slot)) error {
	for {
		n, err := wait(ctx, conn)
		if err != nil {
			return err
		}
		if n == nil {
			continue
		}
		if slot, writer := parse(n.Payload); slot != 0 && writer != s.self {
			heard(slot)
		}
	}
}

// wait waits for a notification. nil: none came for a while, and the database answers.
func wait(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	silent, cancel := context.WithTimeout(ctx, quiet)
	defer cancel()
	n, err := conn.WaitForNotification(silent)
	if err == nil || silent.Err() == nil || ctx.Err() != nil {
		return n, err
	}
	ctx, cancel = context.WithTimeout(ctx, answering)
	defer cancel()
	return nil, conn.Ping(ctx)
}

// parse reads "SLOT WRITER". What is something else has slot 0 and no writer.
func parse(payload string) (slot journal.Slot, writer string) {
	if len(payload) > maxPayload {
		return 0, ""
	}
	digits, writer, found := strings.Cut(payload, " ")
	number, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || !found {
		return 0, ""
	}
	return journal.Slot(number), writer
}
