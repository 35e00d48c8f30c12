// Package s3log keeps a journal in an S3 bucket: one object a slot, created
// by a conditional PUT. README.md is the specification of its objects. It
// never looks into a record, and starts no goroutine that outlives a call.
package s3log

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/xbernetes/xbernetes/internal/journal"
)

const (
	// maxRecord is the length of the longest record. A PUT of it takes well
	// under a second, and a window of them fits in memory.
	maxRecord = 8 << 20
	// depth is how many Appends may be in flight. S3 does not check that slots
	// are consecutive, so this bounds what a reader must look at to be sure.
	depth = 64
	// fewSlots are asked for at once, where nothing is known of them.
	fewSlots = 16
	// maxWindow is how many slots one Read asks for at once, and windowBytes
	// about how much they may hold.
	maxWindow   = 64
	windowBytes = 8 << 20
)

// Log is one journal in a bucket. It implements journal.Store.
type Log struct {
	cfg    Config
	client *s3.Client
	conns  *http.Transport
	info   journal.Info
	ends   *ends
	pace   pace
	spans  spans // realSpans, others in tests

	life  context.Context // ends when Close is called
	end   context.CancelCauseFunc
	mu    sync.Mutex
	calls sync.WaitGroup // the calls in flight; added to under mu while life goes on
}

var _ journal.Store = (*Log)(nil)

// Info describes the journal.
func (l *Log) Info() journal.Info { return l.info }

// Close ends the calls in flight and closes the connections to the store.
func (l *Log) Close() error {
	l.mu.Lock()
	l.end(errClosing)
	l.mu.Unlock()
	l.calls.Wait()
	l.conns.CloseIdleConnections()
	return nil
}

// begin starts a call: its context also ends when the journal is closed.
func (l *Log) begin(ctx context.Context) (context.Context, func(), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.life.Err() != nil {
		return nil, nil, journal.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	l.calls.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	unlink := context.AfterFunc(l.life, func() { cancel(errClosing) })
	return ctx, func() {
		unlink()
		cancel(nil)
		l.calls.Done()
	}, nil
}

// errReadOnly: the journal was opened for reading.
var errReadOnly = errors.New("journal is open for reading only")

func slotName(slot journal.Slot) string { return fmt.Sprintf("%s%020d", slotPrefix, uint64(slot)) }

// The names below the prefix.
const (
	slotPrefix  = "journal/"
	blobPrefix  = "blobs/"
	probePrefix = "probe/"
	metaName    = "meta.json"
	floorPrefix = "floor/"
)

// logger never returns nil.
func (c Config) logger() *slog.Logger {
	if c.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return c.Logger
}
