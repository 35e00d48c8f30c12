// Package journaltest is the one suite that every journal driver passes: each
// sentence of the contract in package journal that a test can see, as a check.
// It knows no driver.
package journaltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// Fixture is one store, empty at first, that the suite may open as often as
// the driver allows.
type Fixture struct {
	// Open returns a new handle on the store. Every call opens the same store,
	// also after all earlier handles are closed. The suite closes what it
	// opens, and opens a driver whose Info says Exclusive once at a time. A
	// driver that leaves slots to a later Trim must be opened so that it does not.
	Open func(ctx context.Context) (journal.Store, error)
}

// Run checks the driver whose stores fresh makes: one subtest a promise, each
// on a fresh store.
func Run(t *testing.T, fresh func(t *testing.T) Fixture) {
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) {
			c.run(&env{TB: t, ctx: t.Context(), fixture: fresh(t)})
		})
	}
}

// check is one promise of the contract.
type check struct {
	name string
	run  func(e *env)
}

func checks() []check {
	return []check{
		{"Empty", checkEmpty},
		{"AppendRead", checkAppendRead},
		{"Taken", checkTaken},
		{"AheadWithinDepth", checkAheadWithinDepth},
		{"AheadOverDepth", checkAheadOverDepth},
		{"OneWinner", checkOneWinner},
		{"NoGaps", checkNoGaps},
		{"BufferReuse", checkBufferReuse},
		{"Paging", checkPaging},
		{"MaxRecord", checkMaxRecord},
		{"Cancelled", checkCancelled},
		{"Closed", checkClosed},
		{"Reopen", checkReopen},
		{"Peek", checkPeek},
		{"Trim", checkTrim},
		{"TrimAll", checkTrimAll},
		{"Blobs", checkBlobs},
		{"BlobNames", checkBlobNames},
		{"BlobList", checkBlobList},
		{"BlobsConcurrent", checkBlobsConcurrent},
	}
}

// env is what one check works with.
type env struct {
	testing.TB
	ctx     context.Context
	fixture Fixture
}

// open returns a new handle, closed when the check ends if not before.
func (e *env) open() journal.Store {
	e.Helper()
	s, err := e.fixture.Open(e.ctx)
	if err != nil {
		e.Fatalf("open store: %v", err)
	}
	e.Cleanup(func() { _ = s.Close() }) // most are closed already; an error was seen there
	return s
}

// reopen closes s and opens the store again.
func (e *env) reopen(s journal.Store) journal.Store {
	e.Helper()
	if err := s.Close(); err != nil {
		e.Fatalf("close store: %v", err)
	}
	return e.open()
}

// handles returns n ways to the store: handles of their own, or one and the
// same where the driver is exclusive.
func (e *env) handles(n int) []journal.Store {
	e.Helper()
	hs := []journal.Store{e.open()}
	for len(hs) < n {
		if hs[0].Info().Exclusive {
			hs = append(hs, hs[0])
		} else {
			hs = append(hs, e.open())
		}
	}
	return hs
}

// append stores rec at slot, or ends the check.
func (e *env) append(s journal.Store, slot journal.Slot, rec []byte) {
	e.Helper()
	if err := s.Append(e.ctx, slot, rec); err != nil {
		e.Fatalf("Append(%d) = %v, want nil", slot, err)
	}
}

// fill appends the records of want at 1, 2, ...
func (e *env) fill(s journal.Store, want [][]byte) {
	e.Helper()
	for i, rec := range want {
		e.append(s, journal.Slot(i+1), rec)
	}
}

// readAll reads from slot on until fewer than limit come, which on a store that
// nobody writes to is the end.
func (e *env) readAll(s journal.Store, from journal.Slot, limit int) [][]byte {
	e.Helper()
	var all [][]byte
	for {
		recs, err := s.Read(e.ctx, from, limit)
		if err != nil {
			e.Fatalf("Read(%d, %d) = %v", from, limit, err)
		}
		if len(recs) > limit {
			e.Fatalf("Read(%d, %d) returned %d records", from, limit, len(recs))
		}
		all = append(all, recs...)
		from += journal.Slot(len(recs))
		if len(recs) < limit {
			return all
		}
	}
}

// wantRecords checks that the store holds want from slot from on, and no more.
func (e *env) wantRecords(s journal.Store, from journal.Slot, want [][]byte) {
	e.Helper()
	got := e.readAll(s, from, 1000)
	if len(got) != len(want) {
		e.Fatalf("slots from %d on hold %d records, want %d", from, len(got), len(want))
	}
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			e.Fatalf("slot %d holds %s, want %s", from+journal.Slot(i), brief(got[i]), brief(want[i]))
		}
	}
}

// wantErr checks that err is want.
func (e *env) wantErr(what string, err, want error) {
	e.Helper()
	if !errors.Is(err, want) {
		e.Fatalf("%s = %v, want %v", what, err, want)
	}
}

// records returns n records that differ from each other in bytes and length.
func records(n int) [][]byte {
	recs := make([][]byte, n)
	for i := range recs {
		recs[i] = bytes.Repeat(fmt.Appendf(nil, "record %d\x00\xff", i+1), 1+i%5)
	}
	return recs
}

// pattern returns n bytes that depend on seed and on their position.
func pattern(seed, n int) []byte {
	b := make([]byte, n)
	x := uint32(seed)*2654435761 + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

// brief shows the start of rec.
func brief(rec []byte) string {
	if len(rec) > 32 {
		return fmt.Sprintf("%q... (%d bytes)", rec[:32], len(rec))
	}
	return fmt.Sprintf("%q", rec)
}
