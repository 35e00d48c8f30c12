// Package natslog keeps a journal in NATS JetStream: one message a slot, in a stream of
// its own, published on the condition of what the stream's last message is. README.md
// is the specification of its streams. It never looks into a record, starts no
// goroutines but those of its connection, and holds no server.
package natslog

import (
	"log/slog"

	"github.com/xbernetes/xbernetes/internal/journal"
)

const (
	// mostRecord is the length of the longest record, in bytes, if the server takes
	// messages of that length.
	mostRecord = 8 << 20
	// leastRecord is the length of a record that every server must take, in bytes.
	leastRecord = 64 << 10
	// overhead is how much longer a message is than its payload at most, in bytes: the
	// frame and the headers.
	overhead = 512
	// depth is how many Appends may be in flight: a stream cannot have a gap.
	depth = 1
	// readAtOnce is after how many records a Read looks at how much they hold.
	readAtOnce = 64
	// readAhead bounds how much is read at once, in bytes. A server closes a
	// connection on which more than 64 MiB wait.
	readAhead = 40 << 20
)

// Log is one journal in JetStream. It implements journal.Store.
type Log struct {
	blobs
	server  *server
	records records
	info    journal.Info
	logger  *slog.Logger // never nil
}

var _ journal.Store = (*Log)(nil)

// Info implements journal.Journal.
func (l *Log) Info() journal.Info { return l.info }

// Close implements journal.Journal.
func (l *Log) Close() error {
	l.server.close()
	return nil
}
