package fsck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
)

// Format is how Dump writes.
type Format string

// The formats of Dump.
const (
	Text Format = "text" // one line a record
	JSON Format = "json" // one JSON object a record, a line each
)

// DumpOptions say what Dump writes. The zero value is the whole journal, as
// text, without values.
type DumpOptions struct {
	From   journal.Slot // 0: the first there is
	To     journal.Slot // the last one; 0: the tail
	Format Format       // empty: Text
	// Values also writes the values of puts and compares: they may be secrets.
	Values bool
	// Requests is how many requests of a batch a line of text tells of; 0: 8,
	// below 0: all. JSON has all.
	Requests int
	// Names are what to call writers, beside their IDs.
	Names map[mvcc.WriterID]string
	// Follow goes on with the records that are appended, until ctx ends.
	Follow bool
	// Poll is how long Follow waits before it looks again; 0: a second.
	Poll time.Duration
}

// Dump writes the records of a journal to w, as they are. Only Check can say which of
// them are void. Corrupt slots have a line too, and in the end make an error that wraps
// journal.ErrCorrupt. If ctx ends while Dump follows, that is no error.
func Dump(ctx context.Context, store journal.Journal, w io.Writer, opts DumpOptions) error {
	d := dumper{id: store.Info().ID, w: w, opts: opts}
	err := d.run(ctx, store)
	if opts.Follow && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// DumpRecords is Dump for records that the caller reads. each must call its argument for
// one record after the other; gap says what could not be read before the record. Slot 0
// stands for no record.
func DumpRecords(w io.Writer, opts DumpOptions, each func(func(slot journal.Slot, rec []byte, gap string) error) error) error {
	d := dumper{w: w, opts: opts}
	return each(func(slot journal.Slot, rec []byte, gap string) error {
		if gap != "" {
			if err := d.write(&entry{slot: slot, bad: fmt.Errorf("%s: %w", gap, journal.ErrCorrupt)}); err != nil {
				return err
			}
		}
		if slot == 0 || slot < opts.From || opts.To > 0 && slot > opts.To {
			return nil
		}
		e := decodeEntry(headID(rec), slot, rec)
		return d.write(&e)
	})
}

// headID returns the journal that a record names. What is wrong with the record is
// reported when it is decoded.
func headID(rec []byte) journal.ID {
	h, _, _ := record.Parse(rec)
	return h.Journal
}

type dumper struct {
	id   journal.ID
	w    io.Writer
	opts DumpOptions
	line []byte // reused
}

func (d *dumper) run(ctx context.Context, store journal.Journal) error {
	slot := max(d.opts.From, 1)
	if d.opts.From == 0 {
		var err error
		if slot, err = First(ctx, store); err != nil {
			return err
		}
	}
	r, corrupt := reader{store: store}, 0
	for d.opts.To == 0 || slot <= d.opts.To {
		left := journal.Slot(0) // no limit
		if d.opts.To > 0 {
			left = d.opts.To - slot + 1
		}
		recs, err := r.read(ctx, slot, left)
		if errors.Is(err, journal.ErrCorrupt) && corrupt < maxCorrupt {
			corrupt++
			if err := d.write(&entry{slot: slot, bad: err}); err != nil {
				return err
			}
			slot++
			continue
		}
		if err != nil {
			return err
		}
		for _, rec := range recs {
			e := decodeEntry(d.id, slot, rec)
			if err := d.write(&e); err != nil {
				return err
			}
			slot++
		}
		if len(recs) > 0 {
			continue
		}
		if !d.opts.Follow {
			break
		}
		if err := d.wait(ctx); err != nil {
			return err
		}
	}
	if corrupt > 0 {
		return fmt.Errorf("%s could not be read; see xb fsck: %w", count(corrupt, "slot"), journal.ErrCorrupt)
	}
	return nil
}

// maxCorrupt is how many corrupt slots Dump reports before it gives up: there might be
// no end of them.
const maxCorrupt = 100

func (d *dumper) wait(ctx context.Context) error {
	poll := d.opts.Poll
	if poll == 0 {
		poll = time.Second
	}
	t := time.NewTimer(poll)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// entry is a record, decoded as far as it can be.
type entry struct {
	slot     journal.Slot
	size     int
	head     record.Header
	body     int // its length, decompressed
	requests []mvcc.Request
	mark     record.SnapshotMark
	floor    journal.Slot
	bad      error // why it is corrupt or void; the chain is not looked at
}

func (d *dumper) write(e *entry) error {
	if d.opts.Format == JSON {
		d.line = e.appendJSON(d.line[:0], d.opts)
	} else {
		d.line = e.appendText(d.line[:0], d.opts)
	}
	if _, err := d.w.Write(append(d.line, '\n')); err != nil {
		return fmt.Errorf("write slot %d: %w", e.slot, err)
	}
	return nil
}

func decodeEntry(id journal.ID, slot journal.Slot, rec []byte) entry {
	e := entry{slot: slot, size: len(rec)}
	var body []byte
	if e.head, body, e.bad = record.Parse(rec); e.bad != nil {
		e.head = record.Header{}
		return e
	}
	s := step{head: e.head}
	s.decode(body)
	e.body, e.requests, e.mark, e.floor, e.bad = len(body), s.requests, s.mark, s.floor, s.void
	if e.head.Journal != id {
		e.bad = fmt.Errorf("record is of journal %s: %w", e.head.Journal, record.ErrForeign)
	}
	return e
}

// First returns the first slot that is not trimmed.
func First(ctx context.Context, store journal.Journal) (journal.Slot, error) {
	low, high := journal.Slot(1), journal.Slot(1)
	for {
		_, err := store.Read(ctx, high, 1)
		switch {
		case errors.Is(err, journal.ErrTrimmed):
			low, high = high+1, 2*high
		case err != nil && !errors.Is(err, journal.ErrCorrupt):
			return 0, err
		default:
			return firstHeld(ctx, store, low, high)
		}
	}
}

// firstHeld returns the lowest slot in [from, to] that is not trimmed; to, if
// all below it are.
func firstHeld(ctx context.Context, store journal.Journal, from, to journal.Slot) (journal.Slot, error) {
	for from < to {
		middle := from + (to-from)/2
		switch _, err := store.Read(ctx, middle, 1); {
		case errors.Is(err, journal.ErrTrimmed):
			from = middle + 1
		case err == nil || errors.Is(err, journal.ErrCorrupt):
			to = middle
		default:
			return 0, err
		}
	}
	return from, nil
}

// Last returns the last slot that holds a record; 0 if none does. It asks for
// about twice as many slots as the number has binary digits.
func Last(ctx context.Context, store journal.Journal) (journal.Slot, error) {
	held := func(slot journal.Slot) (bool, error) {
		recs, err := store.Read(ctx, slot, 1)
		if errors.Is(err, journal.ErrTrimmed) || errors.Is(err, journal.ErrCorrupt) {
			return true, nil
		}
		return len(recs) > 0, err
	}
	low, high := journal.Slot(0), journal.Slot(1) // held or 0; not known to be held
	for {
		ok, err := held(high)
		if err != nil {
			return 0, err
		}
		if !ok {
			break
		}
		low, high = high, 2*high
	}
	for low+1 < high {
		middle := low + (high-low)/2
		ok, err := held(middle)
		if err != nil {
			return 0, err
		}
		if ok {
			low = middle
		} else {
			high = middle
		}
	}
	return low, nil
}
