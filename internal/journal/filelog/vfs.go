package filelog

import (
	"fmt"
	"io"
)

// vfs is what this package asks of a file system. There is one for the
// operating system, and one in the tests that fails and crashes to order.
// Errors wrap those of package io/fs and the errno.
type vfs interface {
	// MkdirAll makes dir and what is missing above it, durably.
	MkdirAll(dir string) error
	// Create makes an empty file for reading and writing; it must not exist.
	Create(name string) (file, error)
	// Open opens a file that exists, for reading or for both.
	Open(name string, write bool) (file, error)
	// Rename puts a file in place of another, at once for all who look.
	Rename(from, to string) error
	Remove(name string) error
	// ReadDir returns the names in dir, sorted.
	ReadDir(dir string) ([]string, error)
	// SyncDir makes the names in dir durable.
	SyncDir(dir string) error
	// Writable returns an error if this process may not create files in dir.
	Writable(dir string) error
	// Lock takes the exclusive lock that the file name stands for, making the
	// file if need be, and notes this process in it. Closing lets go. If
	// another holds it, the error is a *heldError.
	Lock(name string) (io.Closer, error)
}

// file is an open file. ReadAt and WriteAt are as in package io.
type file interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Size() (int64, error)
	Truncate(size int64) error
	// Allocate makes the file size bytes long, all of them backed by the disk
	// where the file system can do so; the new ones read as zero.
	Allocate(size int64) error
	// Sync makes the content durable, and of the metadata what reading it
	// needs. After an error it is not known what is durable, and a second
	// Sync that succeeds says nothing about it.
	Sync() error
}

// heldError says that another process, if known, holds the lock.
type heldError struct{ pid int }

func (e *heldError) Error() string {
	if e.pid == 0 {
		return "held by another process"
	}
	return fmt.Sprintf("held by another process (pid %d)", e.pid)
}
