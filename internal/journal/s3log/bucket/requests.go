package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/xbernetes/xbernetes/internal/backoff"
)

const (
	// Attempts is how often Again sends a request at most, and patience for how
	// many times the time of one request.
	Attempts = 5
	patience = 2
)

// Between is how long to wait before a request is sent again.
var Between = backoff.Backoff{First: 20 * time.Millisecond, Last: time.Second}

// Create stores body under name if the store holds no object of that name, by one
// conditional PUT; if it does, the error is ErrExists. at is when the store
// carried it out, by its own clock; zero if it did not say, or did not carry it out.
func (b *Bucket) Create(ctx context.Context, name string, body []byte) (at time.Time, err error) {
	return b.put(ctx, name, body, aws.String("*"))
}

// Put stores body under name, in place of what is there, by one PUT.
func (b *Bucket) Put(ctx context.Context, name string, body []byte) error {
	_, err := b.put(ctx, name, body, nil)
	return err
}

// put sends one PUT, with the header If-None-Match if ifNoneMatch is not nil.
func (b *Bucket) put(ctx context.Context, name string, body []byte, ifNoneMatch *string) (at time.Time, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, b.allowance(len(body)), errTimeout)
	defer cancel()
	out, err := b.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket:      &b.cfg.Bucket,
		Key:         aws.String(b.cfg.key(name)),
		Body:        bytes.NewReader(body),
		IfNoneMatch: ifNoneMatch,
	})
	if err != nil {
		return at, b.answered(ctx, err)
	}
	return dateOf(out.ResultMetadata), nil
}

// Get returns the object of that name, by one GET. If there is none, the error is
// ErrAbsent; if it is longer than most, ErrTooLong. at is when the store looked, by
// its own clock, if it found the object or that there is none; zero if it did not
// say.
func (b *Bucket) Get(ctx context.Context, name string, most int64) (data []byte, at time.Time, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(b.cfg.RequestTimeout, func() { cancel(errTimeout) })
	defer timer.Stop()
	out, err := b.client.GetObject(ctx, &s3.GetObjectInput{
		Bucket: &b.cfg.Bucket,
		Key:    aws.String(b.cfg.key(name)),
	})
	if err != nil {
		return nil, dateOfError(err), b.answered(ctx, err)
	}
	defer out.Body.Close()
	at = dateOf(out.ResultMetadata)
	length := max(0, aws.ToInt64(out.ContentLength))
	if length > most {
		return nil, at, fmt.Errorf("object %s has %d bytes: %w", name, length, ErrTooLong)
	}
	timer.Reset(b.allowance(int(length)))
	buf := bytes.NewBuffer(make([]byte, 0, length+bytes.MinRead))
	if _, err := buf.ReadFrom(io.LimitReader(out.Body, most+1)); err != nil {
		return nil, at, b.answered(ctx, err)
	}
	if int64(buf.Len()) > most {
		return nil, at, fmt.Errorf("object %s: %w", name, ErrTooLong)
	}
	return buf.Bytes(), at, nil
}

// Exists asks once whether there is an object of that name. It reads one byte
// of it, because a HEAD does not tell a missing key from a missing bucket.
func (b *Bucket) Exists(ctx context.Context, name string) (bool, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, b.cfg.RequestTimeout, errTimeout)
	defer cancel()
	out, err := b.client.GetObject(ctx, &s3.GetObjectInput{
		Bucket: &b.cfg.Bucket,
		Key:    aws.String(b.cfg.key(name)),
		Range:  aws.String("bytes=0-0"),
	})
	switch err := b.answered(ctx, err); {
	case err == nil:
		return true, out.Body.Close()
	case errors.Is(err, ErrAbsent):
		return false, nil
	case statusOf(err) == http.StatusRequestedRangeNotSatisfiable:
		return true, nil // it is there, and empty
	default:
		return false, err
	}
}

// Remove deletes the object of that name, by one DELETE. If there is none, that is
// no error.
func (b *Bucket) Remove(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, b.cfg.RequestTimeout, errTimeout)
	defer cancel()
	_, err := b.client.DeleteObject(ctx, &s3.DeleteObjectInput{
		Bucket: &b.cfg.Bucket,
		Key:    aws.String(b.cfg.key(name)),
	})
	if err := b.answered(ctx, err); !errors.Is(err, ErrAbsent) {
		return err
	}
	return nil
}

// MaxPage is how many objects one page of a listing has at most.
const MaxPage = 1000

// Object is one object of a listing.
type Object struct {
	Name     string    // below the bucket's prefix
	Modified time.Time // by the store's clock
}

// Page is one page of a listing, in the order of the names.
type Page struct {
	Objects []Object
	At      time.Time // when the store looked, by its own clock; zero if it did not say
	Next    string    // what List needs for the page after this one; empty if there is none
}

// List returns a page of the objects whose names start with prefix, by one LIST:
// the first page, of those that come after the name start if start is not empty;
// or if next is not empty, the page that it stands for.
func (b *Bucket) List(ctx context.Context, prefix, start, next string) (Page, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, b.allowance(1<<20), errTimeout)
	defer cancel()
	in := &s3.ListObjectsV2Input{
		Bucket:  &b.cfg.Bucket,
		Prefix:  aws.String(b.cfg.key(prefix)),
		MaxKeys: aws.Int32(MaxPage),
	}
	switch {
	case next != "":
		in.ContinuationToken = &next
	case start != "":
		in.StartAfter = aws.String(b.cfg.key(start))
	}
	out, err := b.client.ListObjectsV2(ctx, in)
	if err != nil {
		return Page{}, b.answered(ctx, err)
	}
	page := Page{At: dateOf(out.ResultMetadata), Objects: make([]Object, len(out.Contents))}
	for i, object := range out.Contents {
		name := strings.TrimPrefix(aws.ToString(object.Key), b.cfg.key(""))
		page.Objects[i] = Object{Name: name, Modified: aws.ToTime(object.LastModified)}
	}
	if aws.ToBool(out.IsTruncated) {
		if page.Next = aws.ToString(out.NextContinuationToken); page.Next == "" {
			return Page{}, fmt.Errorf("the listing of %s/%s is cut off, and does not say where it goes on", b.Location(), prefix)
		}
	}
	return page, nil
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
func (b *Bucket) allowance(size int) time.Duration {
	return b.cfg.RequestTimeout + time.Duration(size)*time.Second/(1<<20)
}

// Again repeats a request that may be repeated while the store seems to be in
// trouble that passes.
func (b *Bucket) Again(ctx context.Context, do func() error) error {
	began := time.Now()
	for n := 1; ; n++ {
		err := do()
		if err == nil || !Passing(err) || n == Attempts || time.Since(began) > patience*b.cfg.RequestTimeout || Between.Pause(ctx, n) != nil {
			return err
		}
	}
}
