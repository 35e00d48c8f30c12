package fsck_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/xbernetes/xbernetes/internal/fsck"
	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/filelog"
	"github.com/xbernetes/xbernetes/internal/record"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

var exhaustive = flag.Bool("exhaustive", false, "flip every bit of the journal, not one of each byte")

// fileJournal makes a journal of a few small files in dir, with two snapshots,
// and returns the lengths of its records.
func fileJournal(t *testing.T, dir string) (records []int) {
	t.Helper()
	store, err := filelog.Open(t.Context(), dir, filelog.Options{SegmentSize: 4 << 10})
	if err != nil {
		t.Fatal(err)
	}
	policy := snapshot.Policy{EveryBytes: 5 << 10}
	r, stop := serve(t, store, policy)
	schedule, marks := snapshot.NewSchedule(policy), 0
	take := func() bool { // in the next record, if there is one
		recs, err := store.Read(t.Context(), journal.Slot(len(records)+1), 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range recs {
			records = append(records, len(rec))
			if h, body, err := record.Parse(rec); err == nil && h.Kind == record.Snapshot {
				m, err := record.ParseSnapshotMark(body)
				if err != nil {
					t.Fatal(err)
				}
				schedule.Marked(m.Slot)
			}
			schedule.Applied(len(rec))
		}
		return len(recs) > 0
	}
	for i := 0; marks < 2 || i < 35; i++ {
		req := put(fmt.Sprint("/registry/", i%5), fmt.Sprint("value ", i))
		if i%9 == 8 {
			req.Then[0].Value = bytes.Repeat([]byte("long "), 200)
		}
		propose(t, r, req)
		take()
		if schedule.Due(0) {
			schedule.Taken()
			marks++
			for !take() { // until the snapshot is stored, and says so
				runtime.Gosched()
			}
		}
	}
	stop()
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return records
}

// examine opens and checks the journal in dir as the command does.
func examine(ctx context.Context, dir string) (*fsck.Report, error) {
	store, err := filelog.OpenReadOnly(ctx, dir)
	if err != nil {
		return fsck.Unopened(err), err
	}
	defer store.Close()
	return fsck.Check(ctx, store, fsck.Options{})
}

// ends returns where the records of each segment end, by its file's name.
func ends(dir string, records []int) (map[string]int, error) {
	files, err := os.ReadDir(filepath.Join(dir, "journal"))
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	for i, f := range files {
		first, err := strconv.Atoi(strings.TrimSuffix(f.Name(), ".log"))
		if err != nil {
			return nil, err
		}
		next := len(records) + 1
		if i+1 < len(files) {
			if next, err = strconv.Atoi(strings.TrimSuffix(files[i+1].Name(), ".log")); err != nil {
				return nil, err
			}
		}
		end := 64 // the header
		for _, n := range records[first-1 : next-1] {
			end += (24 + n + 7) / 8 * 8
		}
		out[filepath.Join("journal", f.Name())] = end
	}
	return out, nil
}

// TestEveryByte flips a bit in every byte of a journal on disk, one at a time. Each flip
// is found, by the check or by the driver that opens the journal, or the byte means
// nothing and the state is what it was.
func TestEveryByte(t *testing.T) {
	home := t.TempDir()
	records := fileJournal(t, home)
	sound, err := examine(t.Context(), home)
	if err != nil || sound.Errors+sound.Warnings > 0 || len(sound.Snapshots) < 2 {
		t.Fatalf("the journal before any flip (%v):\n%s", err, text(t, sound))
	}
	recordsEnd, err := ends(home, records)
	if err != nil || len(recordsEnd) < 2 {
		t.Fatalf("%d segments (%v): want some", len(recordsEnd), err)
	}

	var files []string
	if err := filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && d.Name() != "lock" { // whose content nobody reads
			files = append(files, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	const workers = 2
	var wg sync.WaitGroup
	for worker := range workers {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(home)); err != nil {
			t.Fatal(err)
		}
		f := flipper{t: t, dir: dir, sound: sound, ends: recordsEnd}
		wg.Go(func() {
			for _, path := range files {
				name, err := filepath.Rel(home, path)
				if err == nil {
					err = f.file(name, worker, workers)
				}
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			t.Logf("%d flips: %d found by the driver, %d by the check, %d harmless", f.flips, f.byDriver, f.byCheck, f.flips-f.byDriver-f.byCheck)
			if f.byDriver == 0 || f.byCheck == 0 {
				t.Error("one of the two found nothing")
			}
		})
	}
	wg.Wait()
}

type flipper struct {
	t     *testing.T
	dir   string
	sound *fsck.Report
	ends  map[string]int

	flips, byDriver, byCheck int
}

// file flips bits of one file, those that are this worker's.
func (f *flipper) file(name string, worker, workers int) error {
	path := filepath.Join(f.dir, name)
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	end, isSegment := f.ends[name]
	every := 1 // how many bytes one stands for, if all are kept alike
	switch {
	case strings.HasPrefix(name, "blobs") && !strings.HasSuffix(name, ".json.blob"):
		every = 8 // a hash of the whole blob
	case testing.Short():
		every = 16
	}
	for i := worker; i < len(data); i += workers {
		if !*exhaustive && i > 64 && i/workers%every != 0 {
			continue
		}
		if isSegment && i > end+64 && i%64 > 1 && !*exhaustive {
			continue // zeros
		}
		for bit := range 8 {
			if !*exhaustive && bit != i/2%8 {
				continue
			}
			flipped := data[i] ^ 1<<bit
			if _, err := file.WriteAt([]byte{flipped}, int64(i)); err != nil {
				return err
			}
			missed := f.examine()
			if _, err := file.WriteAt(data[i:i+1], int64(i)); err != nil {
				return err
			}
			if missed != "" && !f.saysNothing(name, data, i, flipped) {
				f.t.Errorf("%s: bit %d of byte %d (%#02x, now %#02x; records end at %d): %s", name, bit, i, data[i], flipped, end, missed)
			}
		}
	}
	return nil
}

// examine returns "" if the flip was found.
func (f *flipper) examine() (missed string) {
	f.flips++
	report, err := examine(context.Background(), f.dir)
	switch {
	case err != nil && report.Journal == "":
		f.byDriver++
		if !errors.Is(err, journal.ErrCorrupt) && !errors.Is(err, journal.ErrNewerFormat) {
			return fmt.Sprintf("the driver says %v, which is neither corrupt nor newer", err)
		}
		return ""
	case errors.Is(err, journal.ErrNewerFormat): // a version says so, before any checksum does
		f.byCheck++
		return ""
	case err != nil:
		return fmt.Sprintf("the check failed: %v", err)
	case report.Errors+report.Warnings > 0:
		f.byCheck++
		return ""
	case report.LastSlot != f.sound.LastSlot || report.StateHash != f.sound.StateHash || report.Chain != f.sound.Chain ||
		!slices.Equal(report.Snapshots, f.sound.Snapshots):
		f.t.Errorf("data differ, and nothing is said:\n%s", text(f.t, report))
	}
	return "nothing was found"
}

// labels is where a manifest begins to say what is only for people, to its end.
const labels = `,"writer":`

// saysNothing reports whether a flip may go unnoticed: behind the last record, between
// upper and lower case in JSON, or in what a manifest says for people.
func (f *flipper) saysNothing(name string, data []byte, i int, flipped byte) bool {
	if end, ok := f.ends[name]; ok {
		return i >= end
	}
	if !strings.HasSuffix(name, ".json") && !strings.HasSuffix(name, ".json.blob") {
		return false
	}
	if from := bytes.Index(data, []byte(labels)); strings.HasSuffix(name, "manifest.json.blob") && from > 0 && i > from {
		return true
	}
	changed := bytes.Clone(data)
	changed[i] = flipped
	return bytes.EqualFold(bytes.TrimSpace(changed), bytes.TrimSpace(data))
}

// TestCutFiles removes every file of a journal, one at a time, and cuts every
// file short. Either is found, or, where the end of the journal is cut off
// without a trace, what is left is how the journal once was.
func TestCutFiles(t *testing.T) {
	home := t.TempDir()
	records := fileJournal(t, home)
	recordsEnd, err := ends(home, records)
	if err != nil {
		t.Fatal(err)
	}
	sound, err := examine(t.Context(), home)
	if err != nil {
		t.Fatal(err)
	}
	last := slices.Max(slices.Collect(maps.Keys(recordsEnd)))
	once := map[fsck.Hash]bool{} // the chains that the journal has had
	for slot := range journal.Slot(len(records)) + 1 {
		chain, err := chainAt(t.Context(), home, slot)
		if err != nil {
			t.Fatal(err)
		}
		once[chain] = true
	}
	for _, dir := range []string{".", "journal", "blobs"} {
		files, err := os.ReadDir(filepath.Join(home, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			name := filepath.Join(dir, f.Name())
			path := filepath.Join(home, name)
			if f.IsDir() || f.Name() == "lock" {
				continue
			}
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for n := -1; n < len(data); n += 1 + len(data)/23 {
				if n < 0 {
					err = os.Remove(path)
				} else {
					err = os.WriteFile(path, data[:n], 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
				report, err := examine(t.Context(), home)
				switch {
				case err != nil || report.Errors+report.Warnings > 0:
				case strings.HasSuffix(name, ".json.blob") && n < 0 && len(report.Findings) > 0: // a snapshot that is not finished
				case name == last && n >= 0 && once[report.Chain]:
				case recordsEnd[name] > 0 && n >= recordsEnd[name] && report.StateHash == sound.StateHash:
				default:
					t.Errorf("%s of %d bytes, cut to %d (-1: removed), and nothing is said:\n%s", name, len(data), n, text(t, report))
				}
			}
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func chainAt(ctx context.Context, dir string, slot journal.Slot) (fsck.Hash, error) {
	store, err := filelog.OpenReadOnly(ctx, dir)
	if err != nil {
		return fsck.Hash{}, err
	}
	defer store.Close()
	chains := record.NewChains(store.Info().ID)
	for chains.Slot() < slot {
		recs, err := store.Read(ctx, chains.Slot()+1, 1)
		if err != nil {
			return fsck.Hash{}, err
		}
		chains.Extend(record.DigestOf(recs[0]))
	}
	return fsck.Hash(chains.Last()), nil
}
