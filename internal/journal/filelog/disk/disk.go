// Package disk is what a file journal asks of a file system, and how the operating
// system does it. It never knows what a file holds.
package disk

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
)

// FS is a file system: OS, or in tests one that fails and crashes to order.
// Errors wrap those of package io/fs and the errno.
type FS interface {
	// MkdirAll makes dir and what is missing above it, durably.
	MkdirAll(dir string) error
	// Create makes an empty file for reading and writing; it must not exist.
	Create(name string) (File, error)
	// Open opens a file that exists, for reading or for both.
	Open(name string, write bool) (File, error)
	// Rename puts a file in place of another, so that every other process sees the one or the other.
	Rename(from, to string) error
	// Remove deletes a file.
	Remove(name string) error
	// ReadDir returns the names in dir, sorted.
	ReadDir(dir string) ([]string, error)
	// SyncDir makes the names in dir durable.
	SyncDir(dir string) error
	// Writable returns an error if this process may not create files in dir.
	Writable(dir string) error
	// Lock takes the exclusive lock that the file name stands for, making the
	// file if need be, and notes this process in it. Closing lets go. If
	// another holds it, the error is a *HeldError.
	Lock(name string) (io.Closer, error)
}

// File is an open file. ReadAt and WriteAt are as in package io.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Size is the file's length in bytes.
	Size() (int64, error)
	// Truncate makes the file size bytes long.
	Truncate(size int64) error
	// Allocate makes the file size bytes long, all of them backed by the disk
	// where the file system can do so; the new ones read as zero.
	Allocate(size int64) error
	// Sync makes the content durable, and of the metadata what reading it
	// needs. After an error it is not known what is durable, and a second
	// Sync that succeeds says nothing about it.
	Sync() error
}

// HeldError says that another process holds the lock.
type HeldError struct {
	PID int // of that process; 0 if it is not known
}

func (e *HeldError) Error() string {
	if e.PID == 0 {
		return "held by another process"
	}
	return fmt.Sprintf("held by another process (pid %d)", e.PID)
}

// TmpSuffix ends the names of files that are not yet what they will be.
const TmpSuffix = ".tmp"

// Replace makes path hold data, durably, in place of what was there, by way
// of the file tmp. After an error path is the old file or the new one.
func Replace(fs FS, path, tmp string, data []byte) error {
	_ = fs.Remove(tmp) // of an earlier attempt
	f, err := fs.Create(tmp)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(data, 0); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = fs.Rename(tmp, path)
	}
	if err != nil {
		_ = fs.Remove(tmp) // else Open does it
		return err
	}
	return fs.SyncDir(filepath.Dir(path))
}
