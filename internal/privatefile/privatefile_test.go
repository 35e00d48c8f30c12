package privatefile

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// lax runs the test with a umask that forbids nothing.
func lax(t *testing.T) {
	t.Helper()
	old := syscall.Umask(0)
	t.Cleanup(func() { syscall.Umask(old) })
}

func write(t *testing.T, name, content string, mode fs.FileMode) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

// TestReplaces holds Write and Create to this: whatever is at a name (nothing,
// a wide file, a link, a hard link), there is a private file after it, and what
// a link leads to is as before.
func TestReplaces(t *testing.T) {
	lax(t)
	makers := map[string]func(name string) error{
		"Write": func(name string) error { return Write(name, []byte("new")) },
		"Create": func(name string) error {
			f, err := Create(name)
			if err != nil {
				return err
			}
			_, err = f.WriteString("new")
			return errors.Join(err, f.Close())
		},
	}
	before := map[string]func(t *testing.T, name, other string) error{
		"nothing":     func(*testing.T, string, string) error { return nil },
		"a wide file": func(t *testing.T, name, _ string) error { write(t, name, "old", 0o666); return nil },
		"a link":      func(_ *testing.T, name, other string) error { return os.Symlink(other, name) },
		"a hard link": func(_ *testing.T, name, other string) error { return os.Link(other, name) },
		"a dangling link": func(_ *testing.T, name, other string) error {
			return os.Symlink(other+"-absent", name)
		},
	}
	for maker, make := range makers {
		for what, prepare := range before {
			t.Run(maker+" over "+what, func(t *testing.T) {
				dir := t.TempDir()
				name, other := filepath.Join(dir, "file"), filepath.Join(dir, "other")
				write(t, other, "not yours", 0o644)
				if err := prepare(t, name, other); err != nil {
					t.Fatal(err)
				}
				if err := make(name); err != nil {
					t.Fatal(err)
				}
				info, err := os.Lstat(name)
				if err != nil || info.Mode() != 0o600 {
					t.Errorf("the file has mode %v, %v; want 0600", info.Mode(), err)
				}
				for file, want := range map[string]string{name: "new", other: "not yours"} {
					if got, err := os.ReadFile(file); err != nil || string(got) != want {
						t.Errorf("%s holds %q, %v; want %q", file, got, err, want)
					}
				}
				entries, err := os.ReadDir(dir)
				if err != nil || len(entries) != 2 {
					t.Errorf("there are %v, %v; want the two files", entries, err)
				}
			})
		}
	}
}

func TestFailedWriteLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "taken") // by a folder, which no file replaces
	if err := os.Mkdir(name, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(name, []byte("new")); err == nil {
		t.Error("a file took the place of a folder")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("there are %v, %v; want the folder alone", entries, err)
	}
}

func TestLock(t *testing.T) {
	lax(t)
	dir := t.TempDir()
	name, other := filepath.Join(dir, "lock"), filepath.Join(dir, "other")
	held, err := Lock(name)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(name); err != nil || info.Mode() != 0o600 {
		t.Errorf("the lock has mode %v, %v; want 0600", info.Mode(), err)
	}
	if _, err := Lock(name); !errors.Is(err, ErrLocked) {
		t.Errorf("a second lock: %v; want ErrLocked", err)
	}
	held.Close()
	again, err := Lock(name)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(other, link); err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(link); err == nil || !strings.Contains(err.Error(), "is a link") {
		t.Errorf("a link: %v; want it refused", err)
	}
	if _, err := os.Lstat(other); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what the link leads to: %v; want it not made", err)
	}
}

func TestExposed(t *testing.T) {
	dir := t.TempDir()
	for mode, want := range map[fs.FileMode]string{0o700: "", 0o500: "", 0o750: "names", 0o755: "names", 0o770: "replace", 0o777: "replace", 0o701: "names"} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if got := Exposed(dir); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("mode %04o is said to be %q; want %q", mode, got, want)
		}
	}
	if got := Exposed(filepath.Join(dir, "absent")); got != "" {
		t.Errorf("a folder that does not exist is said to be %q", got)
	}
}

// TestSocketIsNeverOpen looks at sockets while they are made: none may be open
// to others at any moment.
func TestSocketIsNeverOpen(t *testing.T) {
	lax(t)
	path := filepath.Join(t.TempDir(), "s")
	var looking sync.WaitGroup
	stop := make(chan struct{})
	seen := 0
	looking.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if info, err := os.Lstat(path); err == nil {
				seen++
				if info.Mode().Perm()&others != 0 {
					t.Errorf("the socket has mode %v", info.Mode())
					return
				}
			}
		}
	})
	for i := range 2000 {
		lis, err := Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			connects(t, lis, path)
		}
		lis.Close()
	}
	close(stop)
	looking.Wait()
	t.Logf("looked at a socket %d times", seen)
}

func connects(t *testing.T, lis net.Listener, path string) {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := Listen(path); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a second listener: %v; want address in use", err)
	}
	accepted, err := lis.Accept()
	if err != nil {
		t.Fatal(err)
	}
	accepted.Close()
	if _, err := Listen("@abstract"); err == nil || !strings.Contains(err.Error(), "every user") {
		t.Errorf("an abstract socket: %v; want it refused", err)
	}
}

// TestClaim: one process of a kind at a time has a data directory, which is made for this user
// alone.
func TestClaim(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	lock, err := Claim(dir, "gateway")
	if err != nil {
		t.Fatal(err)
	}
	if why := Exposed(dir); why != "" {
		t.Errorf("the data directory that was made is open to others: %s", why)
	}
	if _, err := Claim(dir, "gateway"); err == nil || !strings.Contains(err.Error(), "is in use by another gateway") {
		t.Errorf("a second gateway has the data directory: %v", err)
	}
	lock.Close()
	again, err := Claim(dir, "gateway")
	if err != nil {
		t.Fatalf("after the first is gone: %v", err)
	}
	again.Close()
}
