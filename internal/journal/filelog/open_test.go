package filelog

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/filelog/disk"
)

// tree returns the files under a directory of the real file system.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			var data []byte
			data, err = os.ReadFile(path)
			out[path] = string(data)
		} else if err == nil {
			out[path] = "directory"
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestHeldByAnother(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(t.Context(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), dir, Options{})
	if err == nil {
		t.Fatal("a second Open = nil, want an error")
	}
	for _, part := range []string{dir, fmt.Sprintf("pid %d", os.Getpid()), "stop that one"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("a second Open = %q, want it to say %q", err, part)
		}
	}
	mustAppend(t, l, 1, []byte("the first is not disturbed"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = Open(t.Context(), dir, Options{}); err != nil {
		t.Fatalf("Open after Close = %v", err)
	}
	_ = l.Close()
}

// denyFS lets nobody write to the directory name.
type denyFS struct {
	disk.OS
	name string
	err  error
}

func (d denyFS) Writable(name string) error {
	if name == d.name {
		return &os.PathError{Op: "write to", Path: name, Err: d.err}
	}
	return d.OS.Writable(name)
}

func TestNotWritable(t *testing.T) {
	for _, sub := range []string{"", journalDir, blobDir} {
		for _, errno := range []error{unix.EACCES, unix.EROFS} {
			dir := t.TempDir()
			l, err := Open(t.Context(), dir, Options{})
			if err != nil {
				t.Fatal(err)
			}
			mustAppend(t, l, 1, []byte("one"))
			_ = l.Close()
			before := tree(t, dir)
			_, err = Open(t.Context(), dir, Options{fs: denyFS{name: filepath.Join(dir, sub), err: errno}})
			if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "may not write") {
				t.Errorf("Open = %v, want it to say that this process may not write to %s", err, dir)
			}
			if !maps.Equal(before, tree(t, dir)) {
				t.Error("Open changed the directory and failed")
			}
		}
	}
	if os.Getuid() == 0 {
		t.Log("root may write everywhere: the real thing was not tried")
		return
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), filepath.Join(dir, "xb"), Options{}); err == nil || !strings.Contains(err.Error(), "may not write") {
		t.Errorf("Open = %v, want it to say that this process may not write there", err)
	}
}

func TestNotADirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), path, Options{})
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "choose a directory") {
		t.Errorf("Open of a file = %v", err)
	}
}

func TestNewerFormatChangesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, metaName), []byte(`{"format":9}`), 0o600); err != nil {
		t.Fatal(err)
	}
	before := tree(t, dir)
	if _, err := Open(t.Context(), dir, Options{}); !errors.Is(err, journal.ErrNewerFormat) {
		t.Errorf("Open = %v, want ErrNewerFormat", err)
	}
	if !maps.Equal(before, tree(t, dir)) { // not even a lock
		t.Error("Open changed the directory and failed")
	}
}

func TestSegmentSize(t *testing.T) {
	for _, size := range []int64{-1, 100, 2 << 30} {
		if _, err := Open(t.Context(), t.TempDir(), Options{SegmentSize: size}); err == nil {
			t.Errorf("Open with segments of %d bytes = nil, want an error", size)
		}
	}
	dir, want := t.TempDir(), [][]byte{}
	for i, size := range []int64{4 << 10, 1 << 20, 8 << 10, 4 << 10} { // another one each time
		l, err := Open(t.Context(), dir, Options{SegmentSize: size})
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			want = append(want, []byte(strings.Repeat(strconv.Itoa(i), 700)))
			mustAppend(t, l, l.view.next, want[len(want)-1])
		}
		wantRecords(t, l, want...)
		_ = l.Close()
	}
	files, _ := filepath.Glob(filepath.Join(dir, journalDir, "*.log"))
	if len(files) < 4 {
		t.Errorf("%d segments, want more than 3", len(files))
	}
}

func TestBlobNames(t *testing.T) {
	for _, name := range []string{"a", "a/b", "snap/1.zst", "..a", "a.tmp", "-"} { // "a" beside "a/b"
		file, err := blobFile(name)
		if back, ok := blobName(file); err != nil || !ok || back != name || strings.Contains(file, "/") {
			t.Errorf("blobFile(%q) = %q, %v, and back %q", name, file, err, back)
		}
	}
	if _, err := blobFile(strings.Repeat("a", 250)); err == nil {
		t.Error("a name that is too long for a file was accepted")
	}
}

// An Append costs its two system calls, and no garbage.
func TestAppendDoesNotAllocate(t *testing.T) {
	l, err := Open(t.Context(), t.TempDir(), Options{SegmentSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, slot, rec := t.Context(), journal.Slot(0), make([]byte, 256)
	if n := testing.AllocsPerRun(500, func() {
		slot++
		if err := l.Append(ctx, slot, rec); err != nil {
			t.Fatal(err)
		}
	}); n >= 1 {
		t.Errorf("an Append allocates %v times, want less than once", n)
	}
}

// killEnv makes the test binary a process that appends until it is killed.
const killEnv = "FILELOG_TEST_KILL_ME_IN"

func TestMain(m *testing.M) {
	if dir := os.Getenv(killEnv); dir != "" {
		err := appendForever(dir)
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func appendForever(dir string) error {
	l, err := Open(bg, dir, Options{SegmentSize: 64 << 10})
	if err != nil {
		return err
	}
	for slot := l.view.next; ; slot++ {
		if err := l.Append(bg, slot, killRecord(slot)); err != nil {
			return err
		}
		fmt.Println(slot)
	}
}

func killRecord(slot journal.Slot) []byte {
	return []byte(strings.Repeat(strconv.Itoa(int(slot))+" ", int(slot)*7%2000))
}

// A process that is killed loses nothing that it acknowledged, and its lock
// ends with it.
func TestKill(t *testing.T) {
	dir, acked := t.TempDir(), journal.Slot(0)
	for round := range 5 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), killEnv+"="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			slot, err := strconv.Atoi(lines.Text())
			if err != nil {
				t.Fatal(err)
			}
			acked = journal.Slot(slot)
			if n == 40+round*13 {
				if round == 0 {
					_, err := Open(t.Context(), dir, Options{})
					if want := fmt.Sprintf("pid %d", cmd.Process.Pid); err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("Open beside the process = %v, want it to say %q", err, want)
					}
				}
				_ = cmd.Process.Kill() // what it said before it died still counts
			}
		}
		_ = cmd.Wait() // it was killed
		l, err := Open(t.Context(), dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := readFrom(l, 1)
		if err != nil || len(got) < int(acked) || len(got) > int(acked)+1 {
			t.Fatalf("%d were acknowledged, and %d are there (%v)", acked, len(got), err)
		}
		for i, rec := range got {
			if string(rec) != string(killRecord(journal.Slot(i+1))) {
				t.Fatalf("slot %d is wrong", i+1)
			}
		}
		_ = l.Close()
	}
}
