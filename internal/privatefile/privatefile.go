// Package privatefile makes files, folders and sockets that only the user of
// this process may use, whatever the umask and whatever waits at their names.
// It never writes through a link, and never leaves a file half written.
package privatefile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// others are the rights of the group and of everybody else.
const others fs.FileMode = 0o077

// Write replaces name by a file that holds data, durably: after a crash the
// old file is there or the new one. A link at name is replaced, and what it
// leads to is left alone.
func Write(name string, data []byte) (err error) {
	dir, base := filepath.Split(name)
	f, err := os.CreateTemp(dir, "."+base+".*") // O_EXCL, mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err == nil {
		err = syncDir(dir)
	}
	return err
}

// syncDir makes what was renamed in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(filepath.Clean(dir))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Create makes an empty file to write to, in place of what is at name.
func Create(name string) (*os.File, error) {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
}

// ErrLocked is returned by Lock while another process holds the lock.
var ErrLocked = errors.New("another process holds the lock")

// Lock takes an exclusive lock on the file name, which it makes if it is not
// there, until the file is closed or the process ends. A link is refused.
func Lock(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%s is a link, and may lead to a file of somebody else; remove it", name)
	}
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ErrLocked
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Claim makes a data directory, if it is not there, and locks it for one process at a time of
// a kind, such as "gateway", until the file that it returns is closed. Its errors are for the
// person who started that process.
func Claim(dir, kind string) (*os.File, error) {
	if err := MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("create data directory: %w", err)
	}
	lock, err := Lock(filepath.Join(dir, kind+".lock"))
	if errors.Is(err, ErrLocked) {
		return nil, fmt.Errorf("data directory %s is in use by another %s; stop that one, or give this one a directory of its own with --data-dir", dir, kind)
	}
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	return lock, nil
}

// MkdirAll makes dir, and what is missing above it, for this user alone. A
// folder that is there keeps its rights: see Exposed.
func MkdirAll(dir string) error { return os.MkdirAll(dir, 0o700) }

// Warn logs a warning if other users can do more with a folder than they should.
func Warn(log *slog.Logger, dir string) {
	if why := Exposed(dir); why != "" {
		log.Warn("keys and data are in a folder that is open to other users; run chmod 700 on it, or choose another", "folder", dir, "reason", why)
	}
}

// Exposed says why a folder is open to other users, and "" if it is not, or
// does not exist.
func Exposed(dir string) string {
	info, err := os.Stat(dir)
	if err != nil {
		return ""
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && owner.Uid != 0 && int(owner.Uid) != os.Geteuid() {
		return fmt.Sprintf("it belongs to another user (uid %d), who can replace what is in it", owner.Uid)
	}
	switch rights := info.Mode().Perm() & others; {
	case rights&0o022 != 0:
		return fmt.Sprintf("it has mode %04o: other users can replace what is in it", info.Mode().Perm())
	case rights != 0:
		return fmt.Sprintf("it has mode %04o: other users can see the names of what is in it", info.Mode().Perm())
	}
	return ""
}

// Listen listens on a Unix socket that only this user may connect to, from the
// moment at which it is there.
func Listen(path string) (net.Listener, error) {
	if strings.HasPrefix(path, "@") {
		return nil, errors.New("an abstract socket is open to every user of this machine; name a file")
	}
	// The rights of a socket that is bound are those that it had before, less
	// the umask: there is no moment at which it is open to others.
	config := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) error {
		var failed error
		err := conn.Control(func(fd uintptr) { failed = syscall.Fchmod(int(fd), 0o600) })
		return errors.Join(err, failed)
	}}
	lis, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	info, err := os.Lstat(path)
	if err == nil && info.Mode().Perm()&others != 0 {
		err = fmt.Errorf("this system makes sockets with mode %04o, open to other users; use a loopback address", info.Mode().Perm())
	}
	if err != nil {
		lis.Close()
		return nil, err
	}
	return lis, nil
}
