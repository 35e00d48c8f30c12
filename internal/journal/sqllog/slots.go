package sqllog

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// Append implements journal.Journal. It sends one INSERT, and repeats it only if the
// database says that it was not carried out.
func (l *Log) Append(ctx context.Context, slot journal.Slot, rec []byte) error {
	if slot == 0 {
		return errors.New("append to slot 0: the first slot is 1")
	}
	if len(rec) > maxRecord {
		return fmt.Errorf("append to slot %d: %d bytes: %w", slot, len(rec), journal.ErrTooLarge)
	}
	ctx, done, err := l.db.beginWrite(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := l.append(ctx, slot, rec); err != nil {
		return fmt.Errorf("append to slot %d: %w", slot, ended(ctx, err))
	}
	return nil
}

// insert creates the row of a slot unless the slot is held, or below the floor. Every
// statement is a serializable transaction: an insert that has read an old floor is not
// carried out beside the deletion of the slots below a new one.
const insert = `INSERT INTO {slots} (slot, record)
	SELECT $1::INT8, $2::BYTEA FROM {meta} WHERE floor <= $1::INT8
	ON CONFLICT (slot) DO NOTHING`

func (l *Log) append(ctx context.Context, slot journal.Slot, rec []byte) error {
	if slot > lastSlot {
		return fmt.Errorf("the last slot is %d: %w", lastSlot, journal.ErrAhead)
	}
	if slot > depth {
		within, err := l.held(ctx, slot-depth)
		if err != nil {
			return err
		}
		if !within {
			return fmt.Errorf("it is more than %d slots past the tail: %w", depth, journal.ErrAhead)
		}
	}
	created, err := l.db.change(ctx, insert, int64(slot), notNull(rec))
	if err != nil {
		return err
	}
	if created == 1 {
		l.tail.note(slot)
		return nil
	}
	floor, found, err := l.rows(ctx, slot, 1)
	switch {
	case err != nil:
		return err
	case slot < floor:
		return fmt.Errorf("the floor is %d: %w", floor, journal.ErrTaken)
	case len(found) == 0:
		return errors.New("the database refuses to fill the slot, and shows it empty")
	}
	l.tail.note(slot)
	if bytes.Equal(found[0].record, rec) {
		return nil // an earlier Append of the same bytes, whose answer was lost
	}
	return journal.ErrTaken
}

// notNull is b, or empty in place of nil, which the database would store as NULL.
func notNull(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// held says whether all slots up to slot are held or trimmed. It looks at depth slots
// only: no slot is filled that is further than depth past the tail, so all slots that
// are depth or more below a held one are held.
func (l *Log) held(ctx context.Context, slot journal.Slot) (bool, error) {
	if l.tail.covers(slot) {
		return true, nil
	}
	first := max(1, int64(slot)-depth+1)
	var floor, count int64
	err := l.db.row(ctx, `SELECT floor, (SELECT count(*) FROM {slots} WHERE slot >= greatest($1::INT8, floor) AND slot <= $2::INT8) FROM {meta}`,
		[]any{first, int64(slot)}, &floor, &count)
	if err != nil {
		return false, err
	}
	if count < int64(slot)-max(first, floor)+1 {
		return false, nil
	}
	l.tail.raise(slot)
	return true, nil
}

// slotRow is the row of one slot.
type slotRow struct {
	slot   journal.Slot
	record []byte
}

// selectRows reads the floor, and the rows of slots from one on, as of one moment. If
// there are none, the one row of the answer has no slot. A record that is too long for
// a record is not fetched.
const selectRows = `SELECT m.floor, s.slot, CASE WHEN length(s.record) <= $3::INT8 THEN s.record END
	FROM {meta} AS m LEFT JOIN {slots} AS s ON s.slot >= $1::INT8 AND s.slot < $2::INT8 ORDER BY s.slot`

// rows returns the floor, and the rows of those of limit slots from from on that are
// held.
func (l *Log) rows(ctx context.Context, from journal.Slot, limit int) (floor journal.Slot, found []slotRow, err error) {
	from = min(from, lastSlot+1) // no row is there or above
	err = l.db.each(ctx, selectRows, []any{int64(from), int64(from) + int64(limit), int64(maxRecord)}, func(r pgx.Row) error {
		var lowest int64
		var slot *int64
		var record []byte
		if err := r.Scan(&lowest, &slot, &record); err != nil {
			return err
		}
		floor = journal.Slot(lowest)
		if slot != nil && record == nil {
			return fmt.Errorf("slot %d holds more than %d bytes: %w", *slot, maxRecord, journal.ErrCorrupt)
		}
		if slot != nil {
			found = append(found, slotRow{journal.Slot(*slot), record})
		}
		return nil
	}, func() { found = nil })
	if err == nil && floor == 0 {
		err = errNoJournal
	}
	return floor, found, err
}

// Read implements journal.Journal.
func (l *Log) Read(ctx context.Context, from journal.Slot, limit int) ([][]byte, error) {
	ctx, done, err := l.db.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	records, err := l.readFrom(ctx, from, limit)
	if err != nil {
		return nil, fmt.Errorf("read slot %d: %w", from, ended(ctx, err))
	}
	return records, nil
}

func (l *Log) readFrom(ctx context.Context, from journal.Slot, limit int) (records [][]byte, err error) {
	for size := 0; len(records) < limit && size < journal.MaxRead; {
		next := from + journal.Slot(len(records))
		page := min(limit-len(records), readAtOnce)
		floor, found, err := l.rows(ctx, next, page)
		if err != nil {
			return nil, err
		}
		if from < floor {
			return nil, fmt.Errorf("the floor is %d: %w", floor, journal.ErrTrimmed)
		}
		if len(found) > 0 && found[0].slot == next { // records above an empty slot are not shown
			if held, err := l.held(ctx, next-1); err != nil || !held {
				return records, err
			}
		}
		n := 0
		for n < len(found) && found[n].slot == next+journal.Slot(n) {
			records = append(records, found[n].record)
			size += len(found[n].record)
			n++
		}
		if n > 0 {
			l.tail.raise(next + journal.Slot(n) - 1)
		}
		if n < page {
			break
		}
	}
	return records, nil
}

// Peek implements journal.Journal.
func (l *Log) Peek(ctx context.Context, slot journal.Slot) ([]byte, error) {
	ctx, done, err := l.db.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	floor, found, err := l.rows(ctx, slot, 1)
	switch {
	case err != nil:
		return nil, fmt.Errorf("peek at slot %d: %w", slot, ended(ctx, err))
	case slot < floor:
		return nil, fmt.Errorf("peek at slot %d: the floor is %d: %w", slot, floor, journal.ErrTrimmed)
	case len(found) == 0:
		return nil, nil
	}
	return found[0].record, nil
}

const (
	raiseFloor = `UPDATE {meta} SET floor = $1::INT8 WHERE floor < $1::INT8`
	deleteRows = `DELETE FROM {slots} WHERE slot IN (
		SELECT slot FROM {slots} WHERE slot > 0 AND slot < $1::INT8 ORDER BY slot LIMIT $2::INT8)`
)

// Trim implements journal.Trimmer. It raises the floor first: from then on the slots
// below it are neither filled nor read, whether they are deleted or not.
func (l *Log) Trim(ctx context.Context, before journal.Slot) (deleted int, err error) {
	ctx, done, err := l.db.beginWrite(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	if deleted, err = l.trim(ctx, before); err != nil {
		err = fmt.Errorf("trim below slot %d: %w", before, ended(ctx, err))
	}
	return deleted, err
}

func (l *Log) trim(ctx context.Context, before journal.Slot) (deleted int, err error) {
	if before <= 1 {
		return 0, nil
	}
	if held, err := l.held(ctx, before-1); err != nil || !held {
		return 0, errors.Join(errors.New("it is past the tail"), err)
	}
	if _, err := l.db.change(ctx, raiseFloor, int64(before)); err != nil {
		return 0, fmt.Errorf("raise the floor: %w", err)
	}
	for {
		n, err := l.db.change(ctx, deleteRows, int64(before), deleteAtOnce)
		deleted += int(n)
		if err != nil || n < deleteAtOnce {
			return deleted, err
		}
	}
}
