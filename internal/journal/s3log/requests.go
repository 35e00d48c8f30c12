package s3log

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

const (
	// attempts is how often a request that may be repeated is sent, and
	// patience for how many times the time of one request.
	attempts = 5
	patience = 2
	// The pause before a request is repeated: up to firstPause, doubled each
	// time up to lastPause.
	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
)

var (
	// errAbsent: the store holds no object of that name.
	errAbsent = errors.New("no such object")
	// errTimeout: the store did not answer within the time of one request.
	errTimeout = errors.New("no answer in time")
	// errClosing: Close was called while a request was in flight.
	errClosing = errors.New("journal was closed meanwhile")
	// errTooLong: the object is longer than anything that belongs there.
	errTooLong = errors.New("object is too long")
)

// condition is what must hold for a PUT to be carried out: a value for
// If-None-Match, or nil.
type condition *string

var (
	ifAbsent condition = aws.String("*") // there is no object of that name
	anyway   condition                   // nothing
)

// put sends one PUT, once. at is when the store carried it out, by its own
// clock; zero if it did not say, or did not carry it out.
func (l *Log) put(ctx context.Context, name string, body []byte, cond condition) (at time.Time, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.allowance(len(body)), errTimeout)
	defer cancel()
	out, err := l.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket:      &l.cfg.Bucket,
		Key:         aws.String(l.cfg.key(name)),
		Body:        bytes.NewReader(body),
		IfNoneMatch: cond,
	})
	if err != nil {
		return at, l.answered(ctx, err)
	}
	return dateOf(out.ResultMetadata), nil
}

// get sends one GET, once. An object longer than most is errTooLong. at is when
// the store looked, by its own clock, if it found the object or that there is
// none; zero if it did not say.
func (l *Log) get(ctx context.Context, name string, most int64) (data []byte, at time.Time, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(l.cfg.RequestTimeout, func() { cancel(errTimeout) })
	defer timer.Stop()
	out, err := l.client.GetObject(ctx, &s3.GetObjectInput{
		Bucket: &l.cfg.Bucket,
		Key:    aws.String(l.cfg.key(name)),
	})
	if err != nil {
		return nil, dateOfError(err), l.answered(ctx, err)
	}
	defer out.Body.Close()
	at = dateOf(out.ResultMetadata)
	length := max(0, aws.ToInt64(out.ContentLength))
	if length > most {
		return nil, at, fmt.Errorf("object %s has %d bytes: %w", name, length, errTooLong)
	}
	timer.Reset(l.allowance(int(length)))
	buf := bytes.NewBuffer(make([]byte, 0, length+bytes.MinRead))
	if _, err := buf.ReadFrom(io.LimitReader(out.Body, most+1)); err != nil {
		return nil, at, l.answered(ctx, err)
	}
	if int64(buf.Len()) > most {
		return nil, at, fmt.Errorf("object %s: %w", name, errTooLong)
	}
	return buf.Bytes(), at, nil
}

// exists asks once whether there is an object of that name. It reads one byte
// of it, because a HEAD does not tell a missing key from a missing bucket.
func (l *Log) exists(ctx context.Context, name string) (bool, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.cfg.RequestTimeout, errTimeout)
	defer cancel()
	out, err := l.client.GetObject(ctx, &s3.GetObjectInput{
		Bucket: &l.cfg.Bucket,
		Key:    aws.String(l.cfg.key(name)),
		Range:  aws.String("bytes=0-0"),
	})
	switch err := l.answered(ctx, err); {
	case err == nil:
		return true, out.Body.Close()
	case errors.Is(err, errAbsent):
		return false, nil
	case statusOf(err) == http.StatusRequestedRangeNotSatisfiable:
		return true, nil // it is there, and empty
	default:
		return false, err
	}
}

// remove sends one DELETE, once. Removing what is not there is no error.
func (l *Log) remove(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, l.cfg.RequestTimeout, errTimeout)
	defer cancel()
	_, err := l.client.DeleteObject(ctx, &s3.DeleteObjectInput{
		Bucket: &l.cfg.Bucket,
		Key:    aws.String(l.cfg.key(name)),
	})
	if err := l.answered(ctx, err); !errors.Is(err, errAbsent) {
		return err
	}
	return nil
}

// list sends one LIST, once: the objects whose names start with prefix and come
// after the name start, if it is not empty; from the one after the token's page on,
// if there is a token.
func (l *Log) list(ctx context.Context, prefix, start string, token *string, most int32) (*s3.ListObjectsV2Output, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.allowance(1<<20), errTimeout)
	defer cancel()
	in := &s3.ListObjectsV2Input{
		Bucket:            &l.cfg.Bucket,
		Prefix:            aws.String(l.cfg.key(prefix)),
		ContinuationToken: token,
		MaxKeys:           aws.Int32(most),
	}
	if start != "" {
		in.StartAfter = aws.String(l.cfg.key(start))
	}
	out, err := l.client.ListObjectsV2(ctx, in)
	return out, l.answered(ctx, err)
}

// dateOf is the Date header of an answer: the store's own time. Zero if there
// was none.
func dateOf(answer middleware.Metadata) time.Time {
	at, _ := awsmiddleware.GetServerTime(answer)
	return at
}

// dateOfError is dateOf for an answer that is an error.
func dateOfError(err error) time.Time {
	var answer *smithyhttp.ResponseError
	if !errors.As(err, &answer) || answer.Response == nil {
		return time.Time{}
	}
	at, err := http.ParseTime(answer.Response.Header.Get("Date"))
	if err != nil {
		return time.Time{}
	}
	return at
}

// allowance is the time that one request with size bytes may take.
func (l *Log) allowance(size int) time.Duration {
	return l.cfg.RequestTimeout + time.Duration(size)*time.Second/(1<<20)
}

// again repeats a request that may be repeated while the store seems to be in
// trouble that passes.
func (l *Log) again(ctx context.Context, do func() error) error {
	began := time.Now()
	for n := 0; ; n++ {
		err := do()
		if err == nil || !passing(err) || n == attempts-1 || time.Since(began) > patience*l.cfg.RequestTimeout || pause(ctx, n) != nil {
			return err
		}
	}
}

// pause waits before the attempt after the n-th.
func pause(ctx context.Context, n int) error {
	most := min(firstPause<<min(n, 10), lastPause)
	timer := time.NewTimer(most/4 + rand.N(most*3/4))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ended(ctx)
	case <-timer.C:
		return nil
	}
}

// ended says why ctx is over: this package's own reason, or that of the caller.
func ended(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, errTimeout) || errors.Is(cause, errClosing) {
		return cause
	}
	return ctx.Err()
}

// answered makes of the SDK's error one that says what happened, to what, and
// what to do. An object that is not there is errAbsent; a request that was cut
// off because the caller's context ended, or the journal was closed, is that.
func (l *Log) answered(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case codeOf(err) == "NoSuchKey":
		return errAbsent
	case statusOf(err) == 0 && ctx.Err() != nil:
		if err = ended(ctx); !errors.Is(err, errTimeout) {
			return err
		}
	}
	return &refusal{sentence: l.cfg.explain(err), cause: err}
}

// passing reports whether the trouble may pass by itself: no answer came, or
// one that puts the blame on the store.
func passing(err error) bool {
	for _, final := range []error{errAbsent, errTooLong, errClosing, context.Canceled, context.DeadlineExceeded} {
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
