package objectlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
)

// Read implements journal.Journal. It asks for a window of slots at once: a few
// at first, and never more than limit, so that asking with a limit of 1 whether
// the next slot is held costs one request; twice as many each time while all of
// them are held.
func (l *Log) Read(ctx context.Context, from journal.Slot, limit int) ([][]byte, error) {
	if from == 0 {
		return nil, errors.New("read from slot 0: the first slot is 1")
	}
	ctx, done, err := l.calls.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if l.floors.trimmed(from) {
		return nil, fmt.Errorf("read slot %d: %w", from, journal.ErrTrimmed)
	}
	recs := l.tail.take(from, limit)
	size := sizeOf(recs)
	for len(recs) < limit && size < journal.MaxRead {
		next := from + journal.Slot(len(recs))
		n := l.pace.window(next, limit-len(recs))
		more, err := l.readFrom(ctx, next, n)
		if errors.Is(err, bucket.ErrTooLong) && n > surely {
			// One of many slots has a longer record than they may have on the average.
			n = surely
			more, err = l.readFrom(ctx, next, n)
		}
		if err != nil {
			return nil, err
		}
		recs = append(recs, more...)
		size += sizeOf(more)
		l.pace.got(next, n, more)
		if len(more) < n {
			break
		}
	}
	return recs, nil
}

// sizeOf is how many bytes records hold together.
func sizeOf(recs [][]byte) (size int) {
	for _, rec := range recs {
		size += len(rec)
	}
	return size
}

// Peek implements journal.Journal.
func (l *Log) Peek(ctx context.Context, slot journal.Slot) ([]byte, error) {
	if slot == 0 {
		return nil, errors.New("peek at slot 0: the first slot is 1")
	}
	ctx, done, err := l.calls.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	recs, oldest, newest, err := l.readSlots(ctx, slot, 1)
	if err == nil {
		err = l.floors.vouch(ctx, slot, oldest, newest)
	}
	if err != nil {
		return nil, fmt.Errorf("peek at slot %d: %w", slot, err)
	}
	if len(recs) == 0 {
		return nil, nil
	}
	return recs[0], nil
}

// readFrom asks for n slots, and returns the records before the first empty
// one.
func (l *Log) readFrom(ctx context.Context, from journal.Slot, n int) ([][]byte, error) {
	var look sync.WaitGroup
	if l.floors.due() {
		// Beside the slots, so that no answer has to wait for it soon. If it
		// fails, vouch looks once more.
		look.Go(func() { _, _ = l.floors.look(ctx) })
	}
	recs, oldest, newest, err := l.readSlots(ctx, from, n)
	look.Wait()
	if err == nil {
		err = l.floors.vouch(ctx, from, oldest, newest)
	}
	var whole bool
	if err == nil && len(recs) > 0 {
		whole, err = l.whole(ctx, from)
	}
	if err != nil {
		return nil, fmt.Errorf("read slot %d: %w", from, err)
	}
	if !whole {
		return nil, nil
	}
	l.tail.raise(from + journal.Slot(len(recs)) - 1)
	return recs, nil
}

// whole says whether every slot before from is held or trimmed. The error is
// journal.ErrTrimmed if from itself was trimmed meanwhile.
func (l *Log) whole(ctx context.Context, from journal.Slot) (bool, error) {
	for {
		known := l.tail.known()
		if err := l.findTail(ctx, from-1, depth); err != nil {
			return false, err
		}
		if l.tail.known() >= from-1 {
			return true, nil
		}
		// A slot before from is empty, or was trimmed while we looked. In the second case
		// the floors say so now, and the slots above them are looked at once more.
		floor, err := l.floors.look(ctx)
		switch {
		case err != nil:
			return false, err
		case from < floor:
			return false, journal.ErrTrimmed
		case l.tail.known() == known:
			return false, nil
		}
	}
}

// readSlots reads n slots from from on at once. It returns the records before
// the first slot that has none, and an error if that slot is not empty: bucket.ErrTooLong
// if its record is longer than an nth of what a Read may return. The
// store looked between oldest and newest, by its own clock; oldest is zero if
// it did not say of each slot.
func (l *Log) readSlots(ctx context.Context, from journal.Slot, n int) (recs [][]byte, oldest, newest time.Time, err error) {
	recs = make([][]byte, n)
	errs := make([]error, n)
	at := make([]time.Time, n)
	most := min(maxRecord, journal.MaxRead/n)
	each(n, func(i int) { recs[i], at[i], errs[i] = l.frames.get(ctx, slotName(from+journal.Slot(i)), most) })
	oldest, newest = at[0], at[0]
	for i, err := range errs {
		if at[i].Before(oldest) {
			oldest = at[i]
		}
		if at[i].After(newest) {
			newest = at[i]
		}
		if errors.Is(err, bucket.ErrAbsent) {
			return recs[:i], oldest, newest, nil
		}
		if err != nil {
			return nil, oldest, newest, err
		}
	}
	return recs, oldest, newest, nil
}

// findTail raises the known tail up to slot as far as the store tells. Nobody
// appends more than depth slots after the tail, so where the last depth slots
// up to some slot are held, all before them are.
func (l *Log) findTail(ctx context.Context, slot journal.Slot, look journal.Slot) error {
	known := l.tail.known()
	if slot <= known {
		return nil
	}
	first := known + 1
	if slot > look {
		first = max(first, slot-look+1)
	}
	held := make([]bool, slot-first+1)
	errs := make([]error, len(held))
	each(len(held), func(i int) {
		errs[i] = l.calls.bucket.Again(ctx, func() (err error) {
			held[i], err = l.calls.bucket.Exists(ctx, slotName(first+journal.Slot(i)))
			return err
		})
	})
	if err := errors.Join(errs...); err != nil {
		return err
	}
	run := journal.Slot(0) // how many held slots end here
	for i, ok := range held {
		here := first + journal.Slot(i)
		if !ok {
			run = 0
			continue
		}
		run++
		if run >= depth || run > here-first && first == known+1 {
			l.tail.raise(here)
		}
	}
	return nil
}
