// Package sqllog keeps a journal in a PostgreSQL database: one row a slot, created by
// an INSERT that does nothing if the row exists. README.md is the specification of its
// tables. It never looks into a record, and starts no goroutines but those of its pool
// of connections.
package sqllog

import (
	"log/slog"
	"math"

	"github.com/xbernetes/xbernetes/internal/journal"
)

const (
	// maxRecord is the length of the longest record, in bytes.
	maxRecord = 8 << 20
	// depth is how many Appends may be in flight. The database does not check that
	// slots are consecutive, so this bounds what a reader must look at to be sure.
	depth = 64
	// lastSlot is the last slot that there can be: a row's slot is signed.
	lastSlot = math.MaxInt64 - 2*depth
	// readAtOnce is how many slots one query reads at most.
	readAtOnce = 64
	// deleteAtOnce is how many slots one statement deletes at most.
	deleteAtOnce = 1000
)

// Log is one journal in a database. It implements journal.Store.
type Log struct {
	blobs
	db     *database
	info   journal.Info
	logger *slog.Logger // never nil
	tail   tail
}

var _ journal.Store = (*Log)(nil)

// Info implements journal.Journal.
func (l *Log) Info() journal.Info { return l.info }

// Close implements journal.Journal.
func (l *Log) Close() error {
	l.db.end(nil)
	l.db.pool.Close()
	return nil
}
