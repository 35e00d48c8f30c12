package journaltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/xbernetes/xbernetes/internal/journal"
)

func checkEmpty(e *env) {
	hs := e.handles(2)
	info := hs[0].Info()
	if info.ID == (journal.ID{}) {
		e.Error("Info().ID is zero, want one drawn at random")
	}
	if info.Depth < 1 {
		e.Errorf("Info().Depth = %d, want at least 1", info.Depth)
	}
	if least := 1 << 20; info.MaxRecord < least {
		e.Errorf("Info().MaxRecord = %d, want at least %d", info.MaxRecord, least)
	}
	if other := hs[1].Info(); other != info {
		e.Errorf("two handles on one store: Info() = %+v and %+v", info, other)
	}
	for _, from := range []journal.Slot{1, 2, 1000} {
		recs, err := hs[0].Read(e.ctx, from, 10)
		if err != nil || len(recs) != 0 {
			e.Errorf("Read(%d) of an empty journal = %d records, %v; want none, nil", from, len(recs), err)
		}
	}
	if _, err := hs[0].Read(e.ctx, 0, 10); err == nil {
		e.Error("Read(0) = nil, want an error: there is no slot 0")
	}
	if err := hs[0].Append(e.ctx, 0, []byte("x")); err == nil {
		e.Error("Append(0) = nil, want an error: there is no slot 0")
	}
	e.wantRecords(hs[0], 1, nil)
}

func checkAppendRead(e *env) {
	hs := e.handles(2)
	want := [][]byte{[]byte("first"), {}, {0}, pattern(1, 300), pattern(2, 70_000), []byte("last")}
	for i, rec := range want {
		e.append(hs[0], journal.Slot(i+1), rec)
		e.wantRecords(hs[1], 1, want[:i+1]) // acknowledged, so every handle sees it
	}
	for i := range want {
		e.wantRecords(hs[0], journal.Slot(i+1), want[i:])
	}
	e.wantRecords(hs[0], journal.Slot(len(want)+1), nil)
	e.wantRecords(hs[0], journal.Slot(len(want)+100), nil)
}

func checkTaken(e *env) {
	hs := e.handles(2)
	want := records(3)
	e.fill(hs[0], want)
	for slot := journal.Slot(1); slot <= 3; slot++ {
		for _, h := range hs {
			e.wantErr(fmt.Sprintf("Append(%d) over another record", slot), h.Append(e.ctx, slot, []byte("usurper")), journal.ErrTaken)
		}
	}
	e.wantRecords(hs[0], 1, want)
	e.wantRecords(hs[1], 1, want)
	e.append(hs[1], 4, []byte("next")) // ErrTaken left nothing behind that is in the way
	e.wantRecords(hs[0], 4, [][]byte{[]byte("next")})
}

func checkAheadWithinDepth(e *env) {
	hs := e.handles(2)
	depth := hs[0].Info().Depth
	if depth == 1 {
		e.Skip("the driver's depth is 1: no slot is ahead and within it")
	}
	want := records(1 + depth)
	e.append(hs[0], 1, want[0])
	for i := depth; i >= 2; i-- { // all but slot 2, the farthest first
		slot := journal.Slot(i + 1)
		e.append(hs[i%2], slot, want[i])
		if i%16 == 0 || i == 2 { // a read past the tail asks far stores for many slots
			e.wantRecords(hs[0], 1, want[:1])
			e.wantRecords(hs[0], slot, nil) // held, but past the tail
		}
		e.wantErr(fmt.Sprintf("Append(%d) over a record ahead", slot), hs[0].Append(e.ctx, slot, []byte("usurper")), journal.ErrTaken)
	}
	hs[0] = e.reopen(hs[0]) // what is ahead is durable too
	e.wantRecords(hs[0], 1, want[:1])
	e.append(hs[0], 2, want[1])
	e.wantRecords(hs[0], 1, want)
	e.wantRecords(hs[1], 1, want)
}

func checkAheadOverDepth(e *env) {
	s := e.open()
	depth := s.Info().Depth
	want := records(depth + 3)
	e.fill(s, want[:2])
	over := journal.Slot(2 + depth + 1)
	for _, slot := range []journal.Slot{over, over + 1, over + 1000, ^journal.Slot(0)} {
		e.wantErr(fmt.Sprintf("Append(%d) with the tail at 2 and depth %d", slot, depth), s.Append(e.ctx, slot, []byte("too far")), journal.ErrAhead)
	}
	for i := 2; i < len(want); i++ {
		e.append(s, journal.Slot(i+1), want[i])
	}
	e.wantRecords(s, 1, want) // slot over included: the early one left nothing
	e.wantRecords(e.reopen(s), 1, want)
}

func checkOneWinner(e *env) {
	const racers, rounds = 8, 12
	hs := e.handles(racers)
	var won [][]byte
	for slot := journal.Slot(1); slot <= rounds; slot++ {
		recs, errs := make([][]byte, racers), make([]error, racers)
		start := make(chan struct{})
		var wg sync.WaitGroup
		for i, h := range hs {
			recs[i] = pattern(i, 10+100*i)
			wg.Go(func() {
				<-start
				errs[i] = h.Append(e.ctx, slot, recs[i])
			})
		}
		close(start)
		wg.Wait()
		winner := -1
		for i, err := range errs {
			switch {
			case err == nil && winner >= 0:
				e.Fatalf("slot %d: racers %d and %d were both told that they hold it", slot, winner, i)
			case err == nil:
				winner = i
			case !errors.Is(err, journal.ErrTaken):
				e.Fatalf("slot %d: racer %d: Append = %v, want nil or ErrTaken", slot, i, err)
			}
		}
		if winner < 0 {
			e.Fatalf("slot %d: no racer was told that it holds it: %v", slot, errs)
		}
		won = append(won, recs[winner])
		e.wantRecords(hs[slot%racers], slot, won[slot-1:])
	}
	for _, h := range hs {
		e.wantRecords(h, 1, won)
	}
}

func checkNoGaps(e *env) {
	const racers, each = 4, 25
	hs := e.handles(racers)
	acked := make([]map[journal.Slot]string, racers)
	errs := make([]error, racers)
	var wg sync.WaitGroup
	for i, h := range hs {
		acked[i] = make(map[journal.Slot]string)
		wg.Go(func() { errs[i] = race(e.ctx, h, i, each, acked[i]) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		e.Fatal(err)
	}
	got := e.readAll(hs[0], 1, 7)
	if len(got) != racers*each {
		e.Fatalf("%d appends were acknowledged, %d records are there", racers*each, len(got))
	}
	for i := range acked {
		for slot, rec := range acked[i] {
			if int(slot) > len(got) || string(got[slot-1]) != rec {
				e.Fatalf("slot %d was acknowledged to racer %d with %q, and does not hold it", slot, i, rec)
			}
		}
	}
}

// race appends n records, each at the first slot that it finds free, and
// notes where they went.
func race(ctx context.Context, h journal.Store, racer, n int, acked map[journal.Slot]string) error {
	next, stuck := journal.Slot(1), 0
	for i := 0; i < n; {
		rec := fmt.Sprintf("racer %d record %d", racer, i)
		err := h.Append(ctx, next, []byte(rec))
		switch {
		case err == nil:
			acked[next] = rec
			next, stuck, i = next+1, 0, i+1
			continue
		case !errors.Is(err, journal.ErrTaken):
			return fmt.Errorf("racer %d: Append(%d) after the tail: %w", racer, next, err)
		case stuck == 1000:
			return fmt.Errorf("racer %d: slot %d is taken, and Read does not show it", racer, next)
		}
		recs, err := h.Read(ctx, next, 1000)
		if err != nil {
			return fmt.Errorf("racer %d: Read(%d): %w", racer, next, err)
		}
		next, stuck = next+journal.Slot(len(recs)), stuck+1
		if len(recs) > 0 {
			stuck = 0
		}
	}
	return nil
}

func checkBufferReuse(e *env) {
	hs := e.handles(2)
	want := records(4)
	buf := make([]byte, 0, 1000)
	for i, rec := range want {
		buf = append(buf[:0], rec...)
		e.append(hs[0], journal.Slot(i+1), buf)
		for j := range buf {
			buf[j] = '!' // the caller's again
		}
	}
	e.wantRecords(hs[0], 1, want)
	for _, rec := range e.readAll(hs[0], 1, 10) {
		for j := range rec {
			rec[j] = '?' // the caller owns what Read returned
		}
		_ = append(rec, "and what follows it is not another record"...)
	}
	e.wantRecords(hs[0], 1, want)
	e.wantRecords(hs[1], 1, want)

	got := e.readAll(hs[0], 1, 10)
	_ = append(got[0], pattern(9, 100)...)
	if !bytes.Equal(got[1], want[1]) {
		e.Fatal("appending to one record that Read returned changed the next one")
	}
}

func checkPaging(e *env) {
	s := e.open()
	want := records(60)
	e.fill(s, want)
	for _, limit := range []int{1, 2, 7, 59, 60, 61, 10_000} {
		for _, from := range []journal.Slot{1, 2, 31, 60, 61} {
			got := e.readAll(s, from, limit) // checks the limit too
			if len(got) != len(want)-int(from)+1 {
				e.Fatalf("reading from %d by %d: %d records in all, want %d", from, limit, len(got), len(want)-int(from)+1)
			}
			for i := range got {
				if !bytes.Equal(got[i], want[int(from)-1+i]) {
					e.Fatalf("reading from %d by %d: slot %d holds %s", from, limit, int(from)+i, brief(got[i]))
				}
			}
		}
	}
	big := pattern(3, 1<<20) // long ones do not make a Read end early
	for i := range 6 {
		e.append(s, journal.Slot(61+i), big)
	}
	e.wantRecords(s, 61, [][]byte{big, big, big, big, big, big})
}

func checkMaxRecord(e *env) {
	s := e.open()
	size := s.Info().MaxRecord
	big := pattern(1, size+1)
	e.wantErr("Append of MaxRecord+1 bytes", s.Append(e.ctx, 1, big), journal.ErrTooLarge)
	e.wantRecords(s, 1, nil)
	e.append(s, 1, big[:size])
	e.append(s, 2, []byte("small"))
	e.wantRecords(s, 1, [][]byte{big[:size], []byte("small")})
	e.wantRecords(e.reopen(s), 1, [][]byte{big[:size], []byte("small")})
}

func checkCancelled(e *env) {
	s := e.open()
	e.append(s, 1, []byte("one"))
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	e.wantErr("Append with a cancelled context", s.Append(ctx, 2, []byte("two")), context.Canceled)
	_, err := s.Read(ctx, 1, 10)
	e.wantErr("Read with a cancelled context", err, context.Canceled)
	e.wantErr("PutBlob with a cancelled context", s.PutBlob(ctx, "b", nil), context.Canceled)
	_, err = s.GetBlob(ctx, "b")
	e.wantErr("GetBlob with a cancelled context", err, context.Canceled)

	// The outcome of that Append is unknown: the same bytes until it is held.
	for len(e.readAll(s, 2, 1)) == 0 {
		if err := s.Append(e.ctx, 2, []byte("two")); err != nil && !errors.Is(err, journal.ErrTaken) {
			e.Fatalf("Append again: %v", err)
		}
	}
	e.wantRecords(s, 1, [][]byte{[]byte("one"), []byte("two")})
}

func checkClosed(e *env) {
	s := e.open()
	info := s.Info()
	e.append(s, 1, []byte("one"))
	if err := s.Close(); err != nil {
		e.Fatalf("close store: %v", err)
	}
	e.wantErr("Append after Close", s.Append(e.ctx, 2, []byte("two")), journal.ErrClosed)
	_, err := s.Read(e.ctx, 1, 1)
	e.wantErr("Read after Close", err, journal.ErrClosed)
	e.wantErr("PutBlob after Close", s.PutBlob(e.ctx, "b", []byte("x")), journal.ErrClosed)
	_, err = s.GetBlob(e.ctx, "b")
	e.wantErr("GetBlob after Close", err, journal.ErrClosed)
	_, err = s.ListBlobs(e.ctx, "")
	e.wantErr("ListBlobs after Close", err, journal.ErrClosed)
	e.wantErr("DeleteBlob after Close", s.DeleteBlob(e.ctx, "b"), journal.ErrClosed)
	_, err = s.Trim(e.ctx, 2)
	e.wantErr("Trim after Close", err, journal.ErrClosed)
	_, err = s.Peek(e.ctx, 1)
	e.wantErr("Peek after Close", err, journal.ErrClosed)
	if s.Info() != info {
		e.Error("Info changed on Close")
	}
	s = e.open()
	e.wantRecords(s, 1, [][]byte{[]byte("one")})
	_, err = s.GetBlob(e.ctx, "b")
	e.wantErr("GetBlob of what was put after Close", err, journal.ErrNoBlob)
}

func checkReopen(e *env) {
	s := e.open()
	info := s.Info()
	want := records(12)
	for i, rec := range want {
		e.append(s, journal.Slot(i+1), rec)
		if i%3 == 2 {
			s = e.reopen(s)
			e.wantRecords(s, 1, want[:i+1])
			e.wantErr("Append over a record from before", s.Append(e.ctx, journal.Slot(i+1), []byte("usurper")), journal.ErrTaken)
		}
	}
	if got := s.Info(); got != info {
		e.Errorf("Info after reopening = %+v, want %+v", got, info)
	}
	e.wantRecords(s, 1, want)
}

func checkPeek(e *env) {
	hs := e.handles(2)
	want := records(3)
	e.fill(hs[0], want)
	held := map[journal.Slot][]byte{1: want[0], 2: want[1], 3: want[2]}
	last := journal.Slot(3)
	if depth := hs[0].Info().Depth; depth > 1 {
		last = 3 + journal.Slot(depth)
		held[last] = []byte("past an empty slot")
		e.append(hs[0], last, held[last])
	}
	for _, h := range hs {
		for slot := journal.Slot(1); slot <= last+2; slot++ {
			rec, err := h.Peek(e.ctx, slot)
			if want, ok := held[slot]; err != nil || (rec != nil) != ok || !bytes.Equal(rec, want) {
				e.Fatalf("Peek(%d) = %s, %v; want %s", slot, brief(rec), err, brief(want))
			}
		}
	}
	if _, err := hs[0].Peek(e.ctx, 0); err == nil {
		e.Error("Peek(0) = nil, want an error: there is no slot 0")
	}
	e.trim(hs[0], 3, 2)
	for _, h := range hs {
		_, err := h.Peek(e.ctx, 2)
		e.wantErr("Peek(2) below the floor 3", err, journal.ErrTrimmed)
		if rec, err := h.Peek(e.ctx, 3); err != nil || !bytes.Equal(rec, want[2]) {
			e.Fatalf("Peek(3) = %s, %v; want %s", brief(rec), err, brief(want[2]))
		}
	}
}

func checkTrim(e *env) {
	hs := e.handles(2)
	want := records(22)
	e.fill(hs[0], want[:20])
	e.trim(hs[0], 1, 0) // nothing is below 1
	e.wantRecords(hs[0], 1, want[:20])
	e.trim(hs[0], 11, 10)
	e.trim(hs[0], 5, 0) // below the floor already: nothing more to do
	e.wantFloor(hs[0], 11)
	e.wantFloor(hs[1], 11)
	e.wantRecords(hs[1], 11, want[10:20])
	e.append(hs[1], 21, want[20])

	late := e.reopen(hs[0]) // the floor is remembered
	e.wantFloor(late, 11)
	e.append(late, 22, want[21])
	e.wantRecords(late, 11, want[10:])
	e.trim(late, 22, 11)
	e.wantFloor(late, 22)
	e.wantRecords(late, 22, want[21:])
}

func checkTrimAll(e *env) {
	s := e.open()
	e.fill(s, records(9))
	e.trim(s, 10, 9)
	for _, again := range []bool{false, true} {
		if again {
			s = e.reopen(s)
		}
		e.wantFloor(s, 10)
		e.wantRecords(s, 10, nil)
	}
	e.append(s, 10, []byte("ten"))
	e.wantRecords(e.reopen(s), 10, [][]byte{[]byte("ten")})
}

// trim trims s, which must say that it deleted so many slots.
func (e *env) trim(s journal.Store, before journal.Slot, deleted int) {
	e.Helper()
	if n, err := s.Trim(e.ctx, before); err != nil || n != deleted {
		e.Fatalf("Trim(%d) = %d, %v; want %d", before, n, err, deleted)
	}
}

// wantFloor checks that all slots below floor are gone for good.
func (e *env) wantFloor(s journal.Store, floor journal.Slot) {
	e.Helper()
	for _, slot := range []journal.Slot{1, floor / 2, floor - 1} {
		_, err := s.Read(e.ctx, slot, 10)
		e.wantErr(fmt.Sprintf("Read(%d) below the floor %d", slot, floor), err, journal.ErrTrimmed)
		e.wantErr(fmt.Sprintf("Append(%d) below the floor %d", slot, floor), s.Append(e.ctx, slot, []byte("late")), journal.ErrTaken)
	}
}
