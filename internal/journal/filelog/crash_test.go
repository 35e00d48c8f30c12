package filelog

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xbernetes/xbernetes/internal/journal"
)

var (
	crashSeed = flag.Uint64("crash.seed", 0, "the one seed to run the crash test with, instead of the usual ones")
	crashRuns = flag.Uint64("crash.runs", crashRunsUsual, "how many seeds to run the crash test with")
)

// TestCrash pulls the plug before every system call of a random life of a
// journal, with and without failing calls, and looks at what is left.
func TestCrash(t *testing.T) {
	first, last := uint64(1), *crashRuns
	if *crashSeed != 0 {
		first, last = *crashSeed, *crashSeed
	}
	crashes := 0
	for seed := first; seed <= last; seed++ {
		l := &life{T: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 1))}
		l.run()
		crashes += l.crashes
	}
	t.Logf("%d crashes survived", crashes)
}

// life is a journal's life: what was done to it, and what it promised.
type life struct {
	*testing.T
	seed    uint64
	rng     *rand.Rand
	fs      *memFS
	log     *Log
	opts    Options
	faults  float64 // how often a call fails
	crashes int

	id      journal.ID
	held    map[journal.Slot][]byte // acknowledged, or shown by a Read
	trying  []byte                  // at next: perhaps stored
	next    journal.Slot
	floors  [2]journal.Slot // the floor is between these
	blobs   map[string][]string
	history []string
}

const dir = "/xb"

func (l *life) run() {
	l.held, l.blobs = make(map[journal.Slot][]byte), make(map[string][]string)
	l.next, l.floors = 1, [2]journal.Slot{1, 1}
	l.fs = newMemFS(l.rng)
	l.fs.before = func(op, name string) error { return l.syscall(op, name) }
	l.opts = Options{SegmentSize: []int64{4 << 10, 4 << 10, 200 << 10}[l.seed%3], fs: l.fs}
	if l.seed%2 == 0 {
		l.faults = 0.05
	}
	l.open()
	for range 60 {
		switch n := l.rng.IntN(20); {
		case n < 13:
			l.append()
		case n < 14:
			l.read()
		case n < 15:
			l.trim()
		case n < 17:
			l.putBlob()
		case n < 18:
			l.note("close")
			_ = l.log.Close()
			l.open()
		default:
			l.kill()
		}
	}
}

func (l *life) note(format string, args ...any) {
	l.history = append(l.history, fmt.Sprintf(format, args...))
}

func (l *life) fatal(format string, args ...any) {
	l.Helper()
	for _, h := range l.history {
		l.Log(h)
	}
	l.Fatalf("seed %d: %s (replay with -crash.seed=%[1]d)", l.seed, fmt.Sprintf(format, args...))
}

// syscall happens before every change to the file system.
func (l *life) syscall(op, name string) error {
	half := func() bool { return l.rng.IntN(2) == 0 }
	most := func() bool { return l.rng.IntN(8) != 0 }
	keeps := []func() bool{never, always, half, most}
	for range 2 {
		l.crashes++
		l.check(l.fs.crash(keeps[l.rng.IntN(len(keeps))], l.rng), true)
	}
	if l.rng.Float64() < l.faults {
		l.note("  %s %s fails", op, name)
		return []error{unix.EIO, unix.ENOSPC}[l.rng.IntN(2)]
	}
	l.note("  %s %s", op, name)
	return nil
}

func (l *life) open() {
	for range 100 {
		l.note("open")
		log, err := Open(l.Context(), dir, l.opts)
		if err == nil {
			l.log, l.id = log, log.Info().ID
			l.readAll()
			return
		}
		if errors.Is(err, journal.ErrCorrupt) || l.faults == 0 {
			l.fatal("Open = %v", err)
		}
	}
	l.fatal("Open never works")
}

// kill ends the process. The page cache outlives it.
func (l *life) kill() {
	l.note("kill")
	l.fs.unlock()
	l.open()
}

func (l *life) record() []byte {
	size := l.rng.IntN(900)
	switch l.rng.IntN(12) {
	case 0:
		size = 0
	case 1:
		size = 6000 // longer than a small segment
	case 2:
		size = 20_000
	}
	rec := make([]byte, size)
	for i := range rec {
		rec[i] = byte(l.rng.Uint32())
	}
	return rec
}

// append appends as callers must: the same bytes until the slot is held.
func (l *life) append() {
	l.trying = l.record()
	for range 100 {
		l.note("append %d, %d bytes", l.next, len(l.trying))
		err := l.log.Append(l.Context(), l.next, l.trying)
		if err == nil {
			l.held[l.next], l.trying = l.trying, nil
			l.next++
			return
		}
		if l.faults == 0 || errors.Is(err, journal.ErrAhead) || errors.Is(err, journal.ErrCorrupt) {
			l.fatal("Append = %v", err)
		}
		l.note("  = %v", err)
		if l.rng.IntN(4) == 0 {
			l.kill()
		}
		if l.read(); l.trying == nil {
			return
		}
	}
	l.fatal("Append never works")
}

// read reads the slot of the last Append, whose outcome may be unknown. A record that
// was shown once must stay.
func (l *life) read() {
	l.note("read %d", l.next)
	recs, err := l.log.Read(l.Context(), l.next, 10)
	switch {
	case err != nil:
		l.note("  = %v", err)
		if l.faults == 0 || errors.Is(err, journal.ErrCorrupt) {
			l.fatal("Read = %v", err)
		}
	case len(recs) > 1 || len(recs) == 1 && (l.trying == nil || !bytes.Equal(recs[0], l.trying)):
		l.fatal("slot %d holds %d records that nobody stored", l.next, len(recs))
	case len(recs) == 1:
		l.note("  is held")
		l.held[l.next], l.trying = l.trying, nil
		l.next++
	}
}

// readAll compares the whole journal with what it promised.
func (l *life) readAll() {
	l.read()
	got, err := readFrom(l.log, l.log.view.floor)
	if err != nil {
		if l.faults == 0 {
			l.fatal("Read = %v", err)
		}
		return
	}
	l.compare("open journal", got, l.log.view.floor)
}

func (l *life) trim() {
	before := l.floors[1] + journal.Slot(l.rng.Int64N(int64(l.next-l.floors[1])+1))
	for range 100 {
		l.note("trim %d", before)
		l.floors[1] = before
		_, err := l.log.Trim(l.Context(), before)
		if err == nil {
			l.floors[0] = before
			l.forget()
			return
		}
		if l.faults == 0 || errors.Is(err, journal.ErrCorrupt) {
			l.fatal("Trim = %v", err)
		}
	}
	l.fatal("Trim never works")
}

func (l *life) forget() {
	for slot := range l.held {
		if slot < l.floors[0] {
			delete(l.held, slot)
		}
	}
}

func (l *life) putBlob() {
	name, data := fmt.Sprintf("snap/%d", l.rng.IntN(3)), fmt.Sprint(l.rng.Uint64(), string(make([]byte, l.rng.IntN(2000))))
	if l.blobs[name] == nil {
		l.blobs[name] = []string{"missing"}
	}
	for range 100 {
		l.note("put %s", name)
		l.blobs[name] = append(l.blobs[name], data)
		err := l.log.PutBlob(l.Context(), name, []byte(data))
		if err == nil {
			l.blobs[name] = []string{data}
			return
		}
		if l.faults == 0 {
			l.fatal("PutBlob = %v", err)
		}
	}
	l.fatal("PutBlob never works")
}

// check opens what a crash left, twice: with a record appended in between. If
// again, it also crashes the first Open at a call of its choice.
func (l *life) check(disk *memFS, again bool) {
	opts := l.opts
	opts.fs = disk
	if again {
		countdown := l.rng.IntN(12)
		disk.before = func(string, string) error {
			if countdown--; countdown == 0 {
				half := func() bool { return l.rng.IntN(2) == 0 }
				l.check(disk.crash(half, l.rng), false)
			}
			return nil
		}
	}
	log, err := Open(l.Context(), dir, opts)
	if err != nil {
		l.fatal("Open after a crash = %v", err)
	}
	if l.id != (journal.ID{}) && log.Info().ID != l.id {
		l.fatal("after a crash the journal is another one")
	}
	disk.before = nil
	got, err := readFrom(log, log.view.floor)
	if err != nil {
		l.fatal("Read after a crash = %v", err)
	}
	l.compare("crash", got, log.view.floor)
	for name, may := range l.blobs {
		data, err := log.GetBlob(l.Context(), name)
		if errors.Is(err, journal.ErrNoBlob) {
			data, err = []byte("missing"), nil
		}
		found := err == nil && false
		for _, m := range may {
			found = found || string(data) == m
		}
		if !found {
			l.fatal("after a crash blob %s holds %d bytes that nobody put there, or lost what was (%v)", name, len(data), err)
		}
	}
	extra := []byte("appended after the crash")
	if err := log.Append(l.Context(), log.view.next, extra); err != nil {
		l.fatal("Append after a crash = %v", err)
	}
	if l.rng.IntN(2) == 0 {
		_ = log.Close()
	}
	opts.fs = disk.crash(never, l.rng) // acknowledged, so it needs no luck
	if log, err = Open(l.Context(), dir, opts); err != nil {
		l.fatal("second Open after a crash = %v", err)
	}
	second, err := readFrom(log, log.view.floor)
	if err != nil || len(second) != len(got)+1 || !bytes.Equal(second[len(got)], extra) {
		l.fatal("second Open after a crash: %d records, want %d (%v)", len(second), len(got)+1, err)
	}
}

// compare holds what a journal returned from floor on against the promises.
func (l *life) compare(when string, got [][]byte, floor journal.Slot) {
	l.Helper()
	if floor < l.floors[0] || floor > l.floors[1] {
		l.fatal("%s: the floor is %d, want one from %d to %d", when, floor, l.floors[0], l.floors[1])
	}
	tail := floor + journal.Slot(len(got)) - 1
	if tail != l.next-1 && (tail != l.next || l.trying == nil) {
		l.fatal("%s: the tail is at %d, want %d", when, tail, l.next-1)
	}
	for i, rec := range got {
		slot := floor + journal.Slot(i)
		want := l.held[slot]
		if slot == l.next {
			want = l.trying
		}
		if !bytes.Equal(rec, want) {
			l.fatal("%s: slot %d holds %d wrong bytes", when, slot, len(rec))
		}
	}
}

// readFrom reads all records from slot on.
func readFrom(s journal.Journal, from journal.Slot) (all [][]byte, err error) {
	for {
		recs, err := s.Read(bg, from, 100)
		if err != nil || len(recs) == 0 {
			return all, err
		}
		all = append(all, recs...)
		from += journal.Slot(len(recs))
	}
}
