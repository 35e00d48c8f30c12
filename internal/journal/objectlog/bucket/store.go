// Package bucket is the contract of an object store as a journal needs it, and
// what all such stores have in common: names, errors, time-outs, repetition. It
// speaks to no store, and never knows what the objects are for.
package bucket

import (
	"context"
	"time"
)

// MaxPage is how many objects one page of a listing has at most.
const MaxPage = 1000

// Store is the part of an object store below one prefix. All methods are safe for
// concurrent use.
//
// Each method sends one request, once: an SDK's own retries must be off, because
// a Create that is repeated after it landed looks like a loss. The request ends
// when ctx does, or when the store does not answer within a bounded time. An error
// is one that Failure made, or one of those that a method names; of any other error
// than ErrExists, ErrConflict, ErrDenied and ErrNotImplemented, a method that
// changes something may have been carried out, or may be later.
//
// The store is strongly consistent: what a request changed is seen by every later
// Get, Exists and List of anybody.
//
// Times are the store's own: its Date header, or what it says about an object. A
// clock of this machine is never a source.
type Store interface {
	// Names returns how messages call the store and its requests.
	Names() Names

	// Create stores body under name if the store holds no object of that name; of
	// several that create one name at once, one wins, and the others get ErrExists.
	// at is when the store carried it out; zero if it did not say, or if err is
	// not nil. ErrConflict: requests met, and this one stored nothing.
	Create(ctx context.Context, name string, body []byte) (at time.Time, err error)

	// Put stores body under name, whole or not at all, in place of what is there.
	Put(ctx context.Context, name string, body []byte) error

	// Get returns the object of that name. If there is none, the error is
	// ErrAbsent; if it is longer than most, ErrTooLong, and no more than most bytes
	// are held. at is when the store looked, if it found the object or that there
	// is none; zero if it did not say.
	Get(ctx context.Context, name string, most int64) (data []byte, at time.Time, err error)

	// Exists says whether there is an object of that name.
	Exists(ctx context.Context, name string) (bool, error)

	// Remove deletes the object of that name. If there is none, that is no error.
	Remove(ctx context.Context, name string) error

	// List returns a page of the objects whose names start with prefix: the first
	// page, of those that come after the name start if start is not empty; or if
	// next is not empty, the page that it stands for. A store that cannot begin a
	// listing at a name lists from the first on.
	List(ctx context.Context, prefix, start, next string) (Page, error)

	// Close closes idle connections. No method is running, or called later.
	Close()
}

// Names are how messages call a store and its requests.
type Names struct {
	Location string // the prefix as people write it, such as s3://bucket/prefix
	Store    string // who answers, such as an endpoint or a region
	Create   string // the request of Create, such as PUT with If-None-Match: *
	Delete   string // the permission of Remove, such as s3:DeleteObject
}

// Object is one object of a listing.
type Object struct {
	Name     string    // below the store's prefix
	Modified time.Time // by the store's clock
}

// Page is one page of a listing, in the order of the names.
type Page struct {
	Objects []Object  // at most MaxPage
	At      time.Time // when the store looked, by its own clock; zero if it did not say
	Next    string    // what List needs for the page after this one; empty if there is none
}
