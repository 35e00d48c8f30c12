package sqllog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/xbernetes/xbernetes/internal/backoff"
	"github.com/xbernetes/xbernetes/internal/journal"
)

// database sends statements, each a serializable transaction by itself.
type database struct {
	pool     *pgxpool.Pool
	names    *strings.Replacer // puts the tables' names into statements
	readOnly bool

	life context.Context // ends when the journal is closed
	end  context.CancelCauseFunc
}

const (
	// connections is how many connections one journal has at most.
	connections = 16
	// connectTimeout bounds the making of a connection, unless the URL says otherwise.
	connectTimeout = 10 * time.Second
	// statementTimeout ends a statement at the database. It is for those that nobody
	// waits for any more: the database may not know yet that a connection is lost.
	statementTimeout = 30 * time.Second
)

func connect(ctx context.Context, cfg Config) (*database, error) {
	pool := cfg.Pool.Copy()
	pool.MaxConns = connections
	if pool.ConnConfig.ConnectTimeout == 0 {
		pool.ConnConfig.ConnectTimeout = connectTimeout
	}
	for name, value := range map[string]string{
		"application_name":              "xbernetes",
		"default_transaction_isolation": "serializable",
		"statement_timeout":             fmt.Sprint(statementTimeout.Milliseconds()),
	} {
		pool.ConnConfig.RuntimeParams[name] = value
	}
	p, err := pgxpool.NewWithConfig(ctx, pool)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	db := &database{
		pool:     p,
		names:    strings.NewReplacer("{meta}", cfg.Table+"_meta", "{slots}", cfg.Table+"_slots", "{blobs}", cfg.Table+"_blobs"),
		readOnly: cfg.ReadOnly,
	}
	db.life, db.end = context.WithCancelCause(context.Background())
	return db, nil
}

// errReadOnly: the journal was opened for reading.
var errReadOnly = errors.New("journal is open for reading only")

// begin starts a call: its context also ends when the journal is closed. done must
// be called at the end.
func (d *database) begin(ctx context.Context) (_ context.Context, done func(), err error) {
	if d.life.Err() != nil {
		return nil, nil, journal.ErrClosed
	}
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(d.life, func() { cancel(errClosedMeanwhile) })
	return ctx, func() { stop(); cancel(nil) }, nil
}

// errClosedMeanwhile ends calls that are under way when the journal is closed. It is
// not ErrClosed, which says that nothing was stored.
var errClosedMeanwhile = errors.New("the journal was closed meanwhile")

// beginWrite is begin for a call that changes something.
func (d *database) beginWrite(ctx context.Context) (_ context.Context, done func(), err error) {
	if d.readOnly {
		return nil, nil, errReadOnly
	}
	return d.begin(ctx)
}

// ended is the error of a call, with the reason if its context has ended.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}

// change sends a statement that changes rows, and returns how many. If the error is
// not one of the database's own, the outcome is unknown.
func (d *database) change(ctx context.Context, statement string, args ...any) (rows int64, err error) {
	err = d.again(ctx, func() error {
		tag, err := d.pool.Exec(ctx, d.names.Replace(statement), args...)
		rows = tag.RowsAffected()
		return err
	})
	return rows, err
}

// row sends a query of one row, and scans it into values. The error is pgx.ErrNoRows
// if there is none.
func (d *database) row(ctx context.Context, query string, args []any, values ...any) error {
	return d.again(ctx, func() error {
		return d.pool.QueryRow(ctx, d.names.Replace(query), args...).Scan(values...)
	})
}

// each sends a query and calls do for each row. If the query has to be sent again, it
// calls restart before.
func (d *database) each(ctx context.Context, query string, args []any, do func(pgx.Row) error, restart func()) error {
	return d.again(ctx, func() error {
		restart()
		rows, err := d.pool.Query(ctx, d.names.Replace(query), args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := do(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

// attempts is how often a transaction is tried that others keep from being serialized.
const attempts = 10

// between is how long to wait between them.
var between = backoff.Backoff{First: 2 * time.Millisecond, Last: time.Second}

// again repeats a statement that the database has not carried out because of others
// beside it. Errors that a person can mend say how.
func (d *database) again(ctx context.Context, send func() error) error {
	for n := 1; ; n++ {
		err := send()
		if n == attempts || !isCode(err, serializationFailure, deadlock) {
			return explain(err)
		}
		if between.Pause(ctx, n) != nil {
			return err
		}
	}
}

// SQLSTATE codes that are acted on.
const (
	serializationFailure = "40001"
	deadlock             = "40P01"
	uniqueViolation      = "23505"
	duplicateTable       = "42P07"
	duplicateObject      = "42710" // the type of a table's rows
	undefinedTable       = "42P01"
	notSupported         = "0A000"
	insufficientRights   = "42501"
	readOnlyTransaction  = "25006"
	diskFull             = "53100"
	wrongPassword        = "28P01"
	notAuthorized        = "28000" // to log in, or from there, or any more
)

// isCode says whether err is the database's, with one of these codes.
func isCode(err error, codes ...string) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	for _, code := range codes {
		if pg.Code == code {
			return true
		}
	}
	return false
}

// explain says in a sentence what a person can do about an error of the database.
func explain(err error) error {
	var connecting *pgconn.ConnectError
	var said *pgconn.PgError
	if errors.As(err, &connecting) {
		err = oneLine{err}
	}
	switch {
	case connecting != nil && !errors.As(err, &said):
		return fmt.Errorf("the database cannot be reached; check that it runs, and its host and port in the journal URL: %w", err)
	case isCode(err, wrongPassword, notAuthorized):
		return fmt.Errorf("the database does not let the user in; correct the user in the journal URL, and the password in the file ~/.pgpass or the one that PGPASSFILE names: %w", err)
	case isCode(err, insufficientRights):
		return fmt.Errorf("the database user lacks a right; README.md of the driver lists those that it needs: %w", err)
	case isCode(err, readOnlyTransaction), isCode(err, notSupported) && strings.Contains(err.Error(), "hot standby"):
		return fmt.Errorf("the database takes no writes; name the primary, not a read replica: %w", err)
	case isCode(err, diskFull):
		return fmt.Errorf("the database's disk is full: %w", err)
	}
	return err
}

// oneLine is an error whose text is in one line: that of a connection has a line for each
// address that was tried.
type oneLine struct{ err error }

func (e oneLine) Error() string { return strings.Join(strings.Fields(e.err.Error()), " ") }
func (e oneLine) Unwrap() error { return e.err }
