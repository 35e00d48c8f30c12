// Package journal is the contract of a totally ordered, durable sequence of
// opaque records in a data service: the only source of truth of a control
// plane. It never looks into a record, and holds no driver.
//
// A driver is a package below this one with a type that implements Store, and a
// test that calls journaltest.Run. docs/journal-drivers.md says what else it needs.
package journal

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
)

// Slot is a position in a journal, from 1, without gaps. 0 is before the first.
type Slot uint64

// ID names one journal for good. It is drawn when the journal is created.
type ID [16]byte

// String is the ID in lower-case hex, 32 characters.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// FormatVersion is the version of the layout that the drivers of this build
// write. CheckFormat refuses journals of other versions.
const FormatVersion = 3

// MaxBlob is the length of the longest blob, in bytes. Of a longer one, a driver
// reads no more than that into memory.
const MaxBlob = 64 << 20

// MaxListed is how many names ListBlobs returns at most: those of fifteen
// snapshots of the largest state. A driver holds no more than twice as many at
// once, however many blobs the store holds.
const MaxListed = 1 << 15

// MaxRead is how many bytes of records one Read should return at most: 64 of the longest.
// However many records are asked for, a driver holds little more than that at once.
const MaxRead = 64 * (8 << 20)

// The closed set of errors that callers act on. Drivers wrap them.
var (
	// ErrTaken: another record holds the slot. Final: nothing was stored.
	ErrTaken = errors.New("slot is taken")
	// ErrAhead: the slot is further past the tail than the driver's Depth
	// allows. Final: nothing was stored.
	ErrAhead = errors.New("slot is ahead of the tail")
	// ErrTooLarge: the record is longer than Info.MaxRecord. Final: nothing
	// was stored.
	ErrTooLarge = errors.New("record is too large")
	// ErrTrimmed: a slot that was asked for is below the floor: it is deleted, or
	// may be at any moment.
	ErrTrimmed = errors.New("slot is trimmed")
	// ErrClosed: the journal was closed in this process. Nothing was stored.
	ErrClosed = errors.New("journal is closed")
	// ErrNoBlob: no blob has that name.
	ErrNoBlob = errors.New("no such blob")
	// ErrNewerFormat: the journal was written by a newer xbernetes.
	ErrNewerFormat = errors.New("journal has a newer format")
	// ErrOlderFormat: the journal was written by an xbernetes before the first
	// release, and cannot be read any more.
	ErrOlderFormat = errors.New("journal has an older format")
	// ErrCorrupt: stored bytes do not match their checksum.
	ErrCorrupt = errors.New("journal is corrupt")
)

// CheckFormat returns an error unless this build opens journals of that version of the
// layout: ErrNewerFormat or ErrOlderFormat, with what to do.
func CheckFormat(version int) error {
	switch {
	case version > FormatVersion:
		return fmt.Errorf("%w (%d; this xb reads %d); use the xb that wrote it, or a newer one", ErrNewerFormat, version, FormatVersion)
	case version < FormatVersion:
		return fmt.Errorf("%w (%d; this xb reads %d); use the xb that wrote it, or start a new journal", ErrOlderFormat, version, FormatVersion)
	}
	return nil
}

// Info is what a driver knows of its journal once it is open. It never changes.
type Info struct {
	ID ID
	// MaxRecord is the length of the longest record that Append takes, in bytes.
	MaxRecord int
	// Exclusive says that no other process can append while this one has the
	// journal open, so that a reader need not ask the store where the tail is.
	Exclusive bool
	// Depth is how many Appends at consecutive slots may be in flight at once,
	// at least 1. With 1, an Append past the slot after the tail is ErrAhead.
	Depth int
}

// Journal is a totally ordered, durable sequence of opaque records. All
// methods are safe for concurrent use, and end early when ctx does. No promise
// rests on a clock of this process, which may stand still for any time between
// calls and during them, as that of a machine that sleeps, or jump.
type Journal interface {
	Info() Info

	// Append stores rec at slot, which must be within Info.Depth after the
	// tail, the last slot up to which every slot is held. The driver keeps no
	// reference to rec after it returns.
	//
	// nil: stored, durable, and seen by every later Read once all slots below
	// it are held. ErrTaken, ErrAhead, ErrTooLarge, ErrClosed: this call did not
	// store rec, and never will. Any other error, that of ctx included: the
	// outcome is unknown, and the record may still land later. The caller must
	// read the slot before it does anything else, and must append nothing but the
	// same bytes to the slot until it is seen to be held.
	Append(ctx context.Context, slot Slot, rec []byte) error

	// Read returns consecutive records from slot from on, at most limit; none if
	// from is past the tail. Fewer than limit means that the slot after the
	// last was empty at some moment during the call, or that those returned hold
	// MaxRead bytes or more together. An acknowledged record is
	// always returned, also by another process, unless it was trimmed: then the
	// error is ErrTrimmed, whatever the slot holds by now. Stored bytes that
	// fail their checksum: ErrCorrupt. The caller owns what is returned.
	Read(ctx context.Context, from Slot, limit int) ([][]byte, error)

	// Peek returns the record that slot holds, or nil if it holds none. Unlike
	// Read it also shows records past the tail, above an empty slot. A caller that is
	// about to fill an empty slot peeks above it first: if the writer of a record
	// there had seen the slot held, then the slot's record was lost.
	// Errors are those of Read. The caller owns what is returned.
	Peek(ctx context.Context, slot Slot) ([]byte, error)

	// Close lets go of the store. Appends in flight end, their outcome unknown.
	Close() error
}

// Blobs holds named byte strings beside a journal, for snapshots: a cache,
// never the truth. A name has one or more parts of [a-z0-9._-], joined by "/".
// All methods are safe for concurrent use, also by several processes.
type Blobs interface {
	// PutBlob stores data, at most MaxBlob bytes, under name, whole or not at
	// all, in place of what was there. After an error the blob is the old one
	// or the new one.
	PutBlob(ctx context.Context, name string, data []byte) error
	// GetBlob returns what was stored under name, or ErrNoBlob. A longer blob
	// than MaxBlob is ErrCorrupt.
	GetBlob(ctx context.Context, name string) ([]byte, error)
	// ListBlobs returns the names that start with prefix, sorted. If there are
	// more than MaxListed, it returns the last of them, and leaves out a folder (the
	// names that are alike up to their last "/") of which it cannot return all.
	ListBlobs(ctx context.Context, prefix string) ([]string, error)
	// DeleteBlob removes name; removing what is not there is no error.
	DeleteBlob(ctx context.Context, name string) error
}

// Trimmer deletes the start of a journal. Only the owner of the journal may call
// it, only below a floor that a record of the journal names, and only once no Append
// to those slots can still be in flight.
type Trimmer interface {
	// Trim deletes the slots below before, the oldest first, and returns how many
	// this call deleted. A driver may leave slots to a later call, of this process
	// or another, until nobody can rely on them any more. From now on, Append to a
	// slot below before is ErrTaken, or ErrTrimmed if its outcome is unknown, and
	// Read of one returns the record that it held, or ErrTrimmed. After an error
	// some slots are gone, and another call goes on.
	Trim(ctx context.Context, before Slot) (deleted int, err error)
}

// Store is what every driver gives: a journal, blobs beside it, and trimming.
type Store interface {
	Journal
	Blobs
	Trimmer
}
