// Package s3log keeps a journal in an S3 bucket: one object a slot, created
// by a conditional PUT. README.md is the specification of its objects. It
// never looks into a record, and starts no goroutine that outlives a call.
package objectlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
)

const (
	// maxRecord is the length of the longest record, in bytes. A PUT of it takes
	// well under a second, and a window of them fits in memory.
	maxRecord = 8 << 20
	// depth is how many Appends may be in flight. A store does not check that slots
	// are consecutive, so this bounds what a reader must look at to be sure.
	depth = 64
)

// The names of objects, below the prefix.
const (
	metaName    = "meta.json"
	slotPrefix  = "journal/" // 20 digits: a slot
	floorPrefix = "floor/"   // 20 digits: a slot below which all is given up
	blobPrefix  = "blobs/"
)

// Options say how a journal is opened. The zero value is useful.
type Options struct {
	// RequestTimeout bounds one request; it must be the store's.
	RequestTimeout bucket.Timeout
	// ReadOnly opens a journal that must exist, creates and proves nothing,
	// and refuses to change anything.
	ReadOnly bool
	// Logger is told of each retry, and why. nil: nothing is logged.
	Logger *slog.Logger
}

// Log is one journal in a bucket. It implements journal.Store.
type Log struct {
	blobs
	info   journal.Info
	logger *slog.Logger // never nil
	calls  calls
	frames frames
	floors *floors
	tail   *tail
	pace   pace
}

var _ journal.Store = (*Log)(nil)

// Info describes the journal.
func (l *Log) Info() journal.Info { return l.info }

// Close ends the calls in flight and closes the connections to the store.
func (l *Log) Close() error {
	l.calls.bucket.Close()
	return nil
}

// calls lets calls of the journal begin.
type calls struct {
	bucket   *bucket.Bucket
	readOnly bool
}

// errReadOnly: the journal was opened for reading.
var errReadOnly = errors.New("journal is open for reading only")

// begin starts a call that changes nothing: its context also ends when the
// journal is closed. done must be called at the end.
func (c calls) begin(ctx context.Context) (_ context.Context, done func(), err error) {
	ctx, done, err = c.bucket.Begin(ctx)
	if errors.Is(err, bucket.ErrClosed) {
		err = journal.ErrClosed
	}
	return ctx, done, err
}

// beginWrite is begin for a call that changes something.
func (c calls) beginWrite(ctx context.Context) (_ context.Context, done func(), err error) {
	if c.readOnly {
		return nil, nil, errReadOnly
	}
	return c.begin(ctx)
}

// slotName is the name of the object that holds the record of slot.
func slotName(slot journal.Slot) string { return numberedName(slotPrefix, slot) }

// numberedName is the name of the object below prefix that stands for slot.
func numberedName(prefix string, slot journal.Slot) string {
	return fmt.Sprintf("%s%020d", prefix, uint64(slot))
}

// each runs do for 0 to n-1 at once, and waits.
func each(n int, do func(i int)) {
	if n == 1 {
		do(0)
		return
	}
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

// firstOf returns the first error that is not nil.
func firstOf(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
