package natslog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// records is the stream of a journal's records. The slot of a record is its sequence
// number in the stream.
type records struct {
	stream
	id      journal.ID
	subject string
	most    int // the length of the longest record, in bytes
}

// lastSlot is the last slot that there can be: the server reads the number that a
// publish is conditional on as a signed one.
const lastSlot = math.MaxInt64 - 1

// span is the slots that a journal holds: from first to last. There are none if first
// is last+1.
type span struct{ first, last journal.Slot }

// span returns the slots that are held at this moment.
func (r records) span(ctx context.Context) (span, error) {
	answer, err := r.look(ctx, infoRequest{})
	if err != nil {
		return span{}, err
	}
	if id, err := readMeta(answer.Config.Metadata); err != nil || id != r.id {
		return span{}, fmt.Errorf("stream %s was deleted, and belongs to another journal now: %w", r.name, errors.Join(journal.ErrCorrupt, err))
	}
	held := span{journal.Slot(answer.State.FirstSeq), journal.Slot(answer.State.LastSeq)}
	if answer.State.Msgs == 0 {
		held.first = held.last + 1
	}
	if held.last > lastSlot || held.first == 0 || held.first > held.last+1 {
		return span{}, fmt.Errorf("stream %s holds messages from %d to %d: %w", r.name, held.first, held.last, journal.ErrCorrupt)
	}
	return held, nil
}

// record returns the record of a slot that span has shown to be held. A message that
// does not match its checksum, or is not there, is read again, in case it was
// altered on the way, or another leader was about to take over.
func (r records) record(ctx context.Context, slot journal.Slot) ([]byte, error) {
	for n := 1; ; n++ {
		msg, err := r.get(ctx, get{Seq: uint64(slot)}, r.most+overhead)
		var rec []byte
		if err == nil {
			rec, err = decodeFrame(slotName(slot), r.id, msg.Data)
		}
		if err == nil {
			return rec, nil
		}
		if !errors.Is(err, errAbsent) && !errors.Is(err, journal.ErrCorrupt) {
			return nil, err
		}
		held, lookErr := r.span(ctx)
		switch {
		case lookErr != nil:
			return nil, lookErr
		case slot < held.first:
			return nil, belowFloor(held)
		case n == 3 && errors.Is(err, errAbsent):
			return nil, fmt.Errorf("the stream has lost the message of slot %d: %w", slot, journal.ErrCorrupt)
		case n == 3:
			return nil, err
		}
		if err := between.Pause(ctx, n); err != nil {
			return nil, err
		}
	}
}

func slotName(slot journal.Slot) string { return "slot/" + strconv.FormatUint(uint64(slot), 10) }

func belowFloor(held span) error {
	return fmt.Errorf("the floor is %d: %w", held.first, journal.ErrTrimmed)
}

// Append implements journal.Journal. It publishes the record once, and again only if
// the server says that it was not stored.
func (l *Log) Append(ctx context.Context, slot journal.Slot, rec []byte) error {
	if slot == 0 {
		return errors.New("append to slot 0: the first slot is 1")
	}
	if len(rec) > l.records.most {
		return fmt.Errorf("append to slot %d: %d bytes: %w", slot, len(rec), journal.ErrTooLarge)
	}
	if slot > lastSlot {
		return fmt.Errorf("append to slot %d: the last slot is %d: %w", slot, uint64(lastSlot), journal.ErrAhead)
	}
	if err := l.server.beginWrite(ctx); err != nil {
		return err
	}
	if err := l.records.append(ctx, slot, rec); err != nil {
		return fmt.Errorf("append to slot %d: %w", slot, err)
	}
	return nil
}

func (r records) append(ctx context.Context, slot journal.Slot, rec []byte) error {
	frame := format.Encode(slotName(slot), r.id, rec)
	for n := 1; ; n++ {
		seq, err := r.server.publish(ctx, r.subject, condition(jetstream.ExpectedLastSeqHeader, uint64(slot-1)), frame)
		switch {
		case err == nil && seq != uint64(slot):
			return fmt.Errorf("the server stored the record as %d, against the condition of the publish", seq)
		case !isCode(err, codeWrongLast, codeWrongLastReplicated):
			return err
		}
		held, err := r.span(ctx)
		switch {
		case err != nil:
			return err
		case slot <= held.last:
			return r.compare(ctx, slot, held, rec)
		case slot > held.last+1:
			return fmt.Errorf("the tail is %d: %w", held.last, journal.ErrAhead)
		case n == attempts:
			return errors.New("the server has taken another write to the slot, and not stored it yet")
		}
		if err := between.Pause(ctx, n); err != nil {
			return err
		}
	}
}

// compare says whether a slot that is held, or below the floor, holds rec: then an
// earlier Append of the same bytes stored it, whose answer was lost.
func (r records) compare(ctx context.Context, slot journal.Slot, held span, rec []byte) error {
	if slot < held.first {
		return fmt.Errorf("the floor is %d: %w", held.first, journal.ErrTaken)
	}
	stored, err := r.record(ctx, slot)
	switch {
	case errors.Is(err, journal.ErrTrimmed):
		return fmt.Errorf("the slot was trimmed: %w", journal.ErrTaken)
	case err != nil:
		return err
	case bytes.Equal(stored, rec):
		return nil
	}
	return journal.ErrTaken
}

// condition makes a publish depend on the last message's sequence number. There is no
// message id: the server would call a message stored that only resembles one.
func condition(header string, seq uint64) nats.Header {
	return nats.Header{header: {strconv.FormatUint(seq, 10)}}
}

// Read implements journal.Journal. It asks once which slots are held, and reads several
// at a time.
func (l *Log) Read(ctx context.Context, from journal.Slot, limit int) ([][]byte, error) {
	if err := l.server.begin(ctx); err != nil {
		return nil, err
	}
	recs, err := l.records.read(ctx, from, limit)
	if err != nil {
		return nil, fmt.Errorf("read slot %d: %w", from, err)
	}
	return recs, nil
}

func (r records) read(ctx context.Context, from journal.Slot, limit int) ([][]byte, error) {
	held, err := r.span(ctx)
	switch {
	case err != nil:
		return nil, err
	case from < held.first:
		return nil, belowFloor(held)
	case from > held.last || limit <= 0:
		return nil, nil
	}
	want := min(uint64(limit), uint64(held.last-from)+1)
	var recs [][]byte
	for size := 0; uint64(len(recs)) < want && size < journal.MaxRead; {
		next := from + journal.Slot(len(recs))
		page, err := r.page(ctx, next, int(min(readAtOnce, want-uint64(len(recs)))))
		if err != nil {
			return nil, err
		}
		for _, rec := range page {
			size += len(rec)
		}
		recs = append(recs, page...)
	}
	return recs, nil
}

// page reads n slots that are held.
func (r records) page(ctx context.Context, from journal.Slot, n int) ([][]byte, error) {
	recs := make([][]byte, n)
	reads, ctx := errgroup.WithContext(ctx)
	reads.SetLimit(inParallel(r.most))
	for i := range recs {
		reads.Go(func() (err error) {
			recs[i], err = r.record(ctx, from+journal.Slot(i))
			return err
		})
	}
	if err := reads.Wait(); err != nil {
		return nil, err
	}
	return recs, nil
}

// inParallel is how many messages of most bytes are read at once. An answer has them
// in base64.
func inParallel(most int) int { return max(2, min(64, readAhead/(most/3*4+overhead))) }

// Peek implements journal.Journal.
func (l *Log) Peek(ctx context.Context, slot journal.Slot) ([]byte, error) {
	if err := l.server.begin(ctx); err != nil {
		return nil, err
	}
	recs, err := l.records.read(ctx, slot, 1)
	if err != nil {
		return nil, fmt.Errorf("peek at slot %d: %w", slot, err)
	}
	if len(recs) == 0 {
		return nil, nil
	}
	return recs[0], nil
}

// Trim implements journal.Trimmer. The stream's numbers go on after what was deleted, so
// that no publish can fill a deleted slot, however late it arrives.
func (l *Log) Trim(ctx context.Context, before journal.Slot) (deleted int, err error) {
	if err := l.server.beginWrite(ctx); err != nil {
		return 0, err
	}
	if deleted, err = l.records.trim(ctx, before); err != nil {
		err = fmt.Errorf("trim below slot %d: %w", before, err)
	}
	return deleted, err
}

func (r records) trim(ctx context.Context, before journal.Slot) (deleted int, err error) {
	held, err := r.span(ctx)
	switch {
	case err != nil:
		return 0, err
	case before > held.last+1: // the server would go on counting from there
		return 0, fmt.Errorf("it is past the tail, %d", held.last)
	case before <= held.first:
		return 0, nil
	}
	return r.purge(ctx, purge{Seq: uint64(before)})
}
