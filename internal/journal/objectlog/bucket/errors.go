package bucket

import (
	"context"
	"errors"
)

// Kinds of answers of the store. Other errors say in one sentence what
// happened and what to do.
var (
	// ErrAbsent: the store holds no object of that name.
	ErrAbsent = errors.New("no such object")
	// ErrExists: the store holds an object of that name already, perhaps by an
	// earlier request of the same caller. This request stored nothing.
	ErrExists = errors.New("object exists")
	// ErrConflict: two requests for one name met. This one stored nothing.
	ErrConflict = errors.New("requests met")
	// ErrDenied: the credentials do not allow the request.
	ErrDenied = errors.New("access is denied")
	// ErrNotImplemented: the store does not know this kind of request.
	ErrNotImplemented = errors.New("not implemented")
	// ErrTooLong: the object is longer than the caller takes.
	ErrTooLong = errors.New("object is too long")
	// ErrClosed: the bucket was closed before the call. Nothing was sent.
	ErrClosed = errors.New("bucket is closed")
	// ErrUnfit: the store breaks a promise that a journal needs.
	ErrUnfit = errors.New("store breaks a promise")

	// ErrTimeout: the store did not answer within the time of one request.
	ErrTimeout = errors.New("no answer in time")
	// errClosing: Close was called while a request was in flight.
	errClosing = errors.New("journal was closed meanwhile")
)

// failure is an error whose text is for people, with its cause underneath.
type failure struct {
	sentence string
	kind     error // ErrExists, ErrConflict, ErrDenied, ErrNotImplemented; nil: none of them
	passing  bool  // the trouble may pass by itself
	cause    error
}

// Failure returns the error about a request of which kind is what the store's
// answer means: ErrExists, ErrConflict, ErrDenied, ErrNotImplemented, or nil for
// any other. passing says that the trouble may pass by itself: no answer came, or
// one that puts the blame on the store.
func Failure(kind error, passing bool, cause error, sentence string) error {
	return &failure{sentence, kind, passing, cause}
}

// Explained returns an error with that text, which wraps cause. Repeating will
// not mend it.
func Explained(cause error, sentence string) error { return &failure{sentence: sentence, cause: cause} }

func (e *failure) Error() string { return e.sentence }
func (e *failure) Unwrap() error { return e.cause }

// Is says whether target is what the store's answer means.
func (e *failure) Is(target error) bool { return e.kind != nil && target == e.kind }

// Passing says whether the trouble may pass by itself: no answer came, or one
// that puts the blame on the store.
func Passing(err error) bool {
	for _, final := range []error{ErrAbsent, ErrTooLong, errClosing, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, final) {
			return false
		}
	}
	var f *failure
	return errors.As(err, &f) && f.passing
}

// There says whether an object is there, by the error of a request about it.
func There(err error) (bool, error) {
	if errors.Is(err, ErrAbsent) {
		return false, nil
	}
	return err == nil, err
}

// Gone is the error of a request to remove an object: none, if it was not there.
func Gone(err error) error {
	if errors.Is(err, ErrAbsent) {
		return nil
	}
	return err
}

// Ended says why ctx is over: the request took too long, the bucket was closed,
// or else the error of ctx.
func Ended(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrTimeout) || errors.Is(cause, errClosing) {
		return cause
	}
	return ctx.Err()
}

// Root is the innermost error: what happened, without the calls that led to it.
func Root(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}
