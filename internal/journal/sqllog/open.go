package sqllog

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// Open opens the journal that cfg names, and creates it if it is not there, unless cfg
// says ReadOnly. It refuses a database that does not keep what it acknowledges, that is
// a read replica, or, when the journal is created, that lets two racers win one slot.
func Open(ctx context.Context, cfg Config) (*Log, error) {
	at := fmt.Sprintf("journal %s in database %q at %s", cfg.Table, cfg.Pool.ConnConfig.Database, cfg.Pool.ConnConfig.Host)
	db, err := connect(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", at, err)
	}
	l := &Log{blobs: blobs{db}, db: db, info: journal.Info{MaxRecord: maxRecord, Depth: depth}, logger: cfg.Logger}
	if l.logger == nil {
		l.logger = slog.New(slog.DiscardHandler)
	}
	if err := l.prepare(ctx); err != nil {
		_ = l.Close() // nothing is under way
		return nil, fmt.Errorf("open %s: %w", at, err)
	}
	return l, nil
}

func (l *Log) prepare(ctx context.Context) error {
	if !l.db.readOnly {
		if err := l.checkPromises(ctx); err != nil {
			return err
		}
	}
	id, err := l.readMeta(ctx)
	if errors.Is(err, errNoJournal) && !l.db.readOnly {
		if err := l.create(ctx); err != nil {
			return fmt.Errorf("create it: %w", err)
		}
		id, err = l.readMeta(ctx)
	}
	l.info.ID = id
	return err
}

// checkPromises refuses a database that would not keep what it acknowledges.
// CockroachDB does not have these settings, and always syncs.
func (l *Log) checkPromises(ctx context.Context) error {
	for _, setting := range []struct{ name, bad, means string }{
		{"fsync", "off", "it loses acknowledged writes when it crashes"},
		{"synchronous_commit", "off", "it loses acknowledged writes when it crashes"},
		{"transaction_read_only", "on", "it takes no writes; name the primary, as a user who may write"},
	} {
		var value *string
		if err := l.db.row(ctx, "SELECT current_setting($1, true)", []any{setting.name}, &value); err != nil {
			return err
		}
		if value != nil && *value == setting.bad {
			return fmt.Errorf("the database has %s = %s: %s", setting.name, setting.bad, setting.means)
		}
	}
	return nil
}

// errNoJournal: the tables are not there, or hold no journal.
var errNoJournal = errors.New("there is no journal")

func (l *Log) readMeta(ctx context.Context) (id journal.ID, err error) {
	var format int64
	var stored []byte
	err = l.db.row(ctx, "SELECT format, journal FROM {meta}", nil, &format, &stored)
	switch {
	case errors.Is(err, pgx.ErrNoRows), isCode(err, undefinedTable):
		return id, errNoJournal
	case err != nil:
		return id, err
	}
	if err := journal.CheckFormat(int(format)); err != nil {
		return id, err
	}
	if len(stored) != len(id) {
		return id, fmt.Errorf("its id has %d bytes: %w", len(stored), journal.ErrCorrupt)
	}
	return journal.ID(stored), nil
}

// schema makes the tables. README.md says what they hold.
var schema = []string{
	`CREATE TABLE IF NOT EXISTS {meta} (
		one     INT8 PRIMARY KEY CHECK (one = 1),
		format  INT8 NOT NULL,
		journal BYTEA NOT NULL,
		floor   INT8 NOT NULL
	)`,
	`CREATE TABLE IF NOT EXISTS {slots} (
		slot   INT8 PRIMARY KEY,
		record BYTEA NOT NULL
	)`,
	`CREATE TABLE IF NOT EXISTS {blobs} (
		name BYTEA PRIMARY KEY,
		data BYTEA NOT NULL
	)`,
}

// create makes the tables, and draws the journal's id. If several servers do so at
// once, the first id stays.
func (l *Log) create(ctx context.Context) error {
	for _, statement := range schema {
		if err := l.createTable(ctx, statement); err != nil {
			return err
		}
	}
	// Both in one statement: another server may have created the journal meanwhile.
	var orphaned bool
	if err := l.db.row(ctx, "SELECT EXISTS (SELECT 1 FROM {slots} WHERE slot > 0) AND NOT EXISTS (SELECT 1 FROM {meta})", nil, &orphaned); err != nil {
		return err
	}
	if orphaned {
		return fmt.Errorf("there are records, and nothing says of which journal: %w", journal.ErrCorrupt)
	}
	if err := l.probe(ctx); err != nil {
		return err
	}
	var id journal.ID
	rand.Read(id[:]) // never fails: crypto/rand ends the process instead
	_, err := l.db.change(ctx, "INSERT INTO {meta} (one, format, journal, floor) VALUES (1, $1, $2, 1) ON CONFLICT (one) DO NOTHING", journal.FormatVersion, id[:])
	return err
}

// createTable makes a table. PostgreSQL may refuse that to all but one of several that
// do so at once.
func (l *Log) createTable(ctx context.Context, statement string) error {
	for n := 1; ; n++ {
		_, err := l.db.change(ctx, statement)
		if isCode(err, insufficientRights) {
			return fmt.Errorf("the user may not make its tables; have an administrator GRANT CREATE ON SCHEMA, for the schema that the database names here, or make the journal as another user: %w", err)
		}
		if n == attempts || !isCode(err, uniqueViolation, duplicateTable, duplicateObject) {
			return err
		}
		if between.Pause(ctx, n) != nil {
			return err
		}
	}
}

const racers = 8

// probe has racers fill one slot at once, one below 1 that no journal has. Exactly one
// must be told that it has filled it, and the record must be its own.
func (l *Log) probe(ctx context.Context) error {
	var random [8]byte
	rand.Read(random[:]) // never fails, as above
	slot := -1 - int64(binary.LittleEndian.Uint64(random[:])>>2)
	var won [racers]bool
	race, raceCtx := errgroup.WithContext(ctx)
	for n := range racers {
		race.Go(func() error {
			created, err := l.db.change(raceCtx, "INSERT INTO {slots} (slot, record) VALUES ($1, $2) ON CONFLICT (slot) DO NOTHING", slot, []byte{byte(n)})
			won[n] = created == 1
			return err
		})
	}
	err := race.Wait()
	var stored []byte
	if err == nil {
		err = l.db.row(ctx, "SELECT record FROM {slots} WHERE slot = $1", []any{slot}, &stored)
	}
	if _, deleteErr := l.db.change(ctx, "DELETE FROM {slots} WHERE slot = $1", slot); err == nil {
		err = deleteErr
	}
	if err != nil {
		return fmt.Errorf("try the database: %w", err)
	}
	winners := 0
	for _, w := range won {
		if w {
			winners++
		}
	}
	if winners != 1 || len(stored) != 1 || stored[0] >= racers || !won[stored[0]] {
		return fmt.Errorf("the database told %d of %d racers that they had filled one slot", winners, racers)
	}
	return nil
}
