package disk

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Allocate reserves the blocks, so that syncing a write carries no metadata.
// Where the file system cannot (NFS, some ZFS), the file is sparse instead.
func (f *osFile) Allocate(size int64) error {
	err := retry(func() error { return unix.Fallocate(f.fd, 0, 0, size) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return f.Truncate(size)
	}
	if err != nil {
		return &os.PathError{Op: "allocate", Path: f.Name(), Err: err}
	}
	return nil
}

func (f *osFile) Sync() error {
	err := unix.Fdatasync(f.fd)
	if errors.Is(err, unix.EINTR) {
		err = retry(func() error { return unix.Fdatasync(f.fd) })
	}
	if err != nil {
		return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
	}
	return nil
}

func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
