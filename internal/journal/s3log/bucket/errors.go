package bucket

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// What an answer of the store means. Other errors say in one sentence what
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

	// errTimeout: the store did not answer within the time of one request.
	errTimeout = errors.New("no answer in time")
	// errClosing: Close was called while a request was in flight.
	errClosing = errors.New("journal was closed meanwhile")
)

// kinds are the errors that a status of HTTP stands for.
var kinds = map[int]error{
	http.StatusPreconditionFailed: ErrExists,
	http.StatusConflict:           ErrConflict,
	http.StatusForbidden:          ErrDenied,
	http.StatusNotImplemented:     ErrNotImplemented,
}

// explained is an error whose text is for people, with its cause underneath.
type explained struct {
	sentence string
	cause    error
}

// Explained returns an error with that text, which wraps cause.
func Explained(cause error, sentence string) error { return &explained{sentence, cause} }

func (e *explained) Error() string { return e.sentence }
func (e *explained) Unwrap() error { return e.cause }

// Is says whether target is what the status of the answer stands for.
func (e *explained) Is(target error) bool { return target == kinds[statusOf(e.cause)] }

// Undated is the error about a store that does not say what time it is.
func (b *Bucket) Undated() error {
	return Explained(ErrUnfit, fmt.Sprintf("the answers of the store at %s carry no Date, by which a journal tells how old they are; use a store that sends one, as S3 does, and no proxy that removes it", b.Store()))
}

// Passing says whether the trouble may pass by itself: no answer came, or one
// that puts the blame on the store.
func Passing(err error) bool {
	for _, final := range []error{ErrAbsent, ErrTooLong, errClosing, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, final) {
			return false
		}
	}
	switch codeOf(err) {
	case "RequestTimeout", "SlowDown", "ConditionalRequestConflict", "OperationAborted":
		return true
	}
	status := statusOf(err)
	return codeOf(err) == "" || // no answer, or one that was garbled
		status >= 500 && status != http.StatusNotImplemented ||
		status == http.StatusTooManyRequests || status == http.StatusConflict
}

// Ended says why ctx is over: the request took too long, the bucket was closed,
// or else the error of ctx.
func Ended(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, errTimeout) || errors.Is(cause, errClosing) {
		return cause
	}
	return ctx.Err()
}

// answered makes of the SDK's error one that says what happened, to what, and
// what to do. If an object is not there, that is ErrAbsent; if a request was cut
// off because the caller's context ended or the bucket was closed, it is the
// error of that.
func (b *Bucket) answered(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case codeOf(err) == "NoSuchKey":
		return ErrAbsent
	case statusOf(err) == 0 && ctx.Err() != nil:
		if err = Ended(ctx); !errors.Is(err, errTimeout) {
			return err
		}
	}
	return Explained(err, b.cfg.explain(err))
}

// statusOf is the HTTP status of the answer, 0 if none came.
func statusOf(err error) int {
	var answer *smithyhttp.ResponseError
	if errors.As(err, &answer) && answer.Response != nil {
		return answer.HTTPStatusCode()
	}
	return 0
}

// codeOf is S3's error code, "" if none came.
func codeOf(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}
