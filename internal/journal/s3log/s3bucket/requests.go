package s3bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
)

// Create implements bucket.Store, by one conditional PUT.
func (s *Store) Create(ctx context.Context, name string, body []byte) (at time.Time, err error) {
	return s.put(ctx, name, body, aws.String("*"))
}

// Put implements bucket.Store, by one PUT.
func (s *Store) Put(ctx context.Context, name string, body []byte) error {
	_, err := s.put(ctx, name, body, nil)
	return err
}

// put sends one PUT, with the header If-None-Match if ifNoneMatch is not nil.
func (s *Store) put(ctx context.Context, name string, body []byte, ifNoneMatch *string) (at time.Time, err error) {
	ctx, cancel := s.timeout.Limit(ctx, len(body))
	defer cancel()
	out, err := s.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket:      &s.cfg.Bucket,
		Key:         aws.String(s.prefix.Key(name)),
		Body:        bytes.NewReader(body),
		IfNoneMatch: ifNoneMatch,
	})
	if err != nil {
		return at, s.answered(ctx, name, err)
	}
	return dateOf(out.ResultMetadata), nil
}

// Get implements bucket.Store, by one GET.
func (s *Store) Get(ctx context.Context, name string, most int64) (data []byte, at time.Time, err error) {
	ctx, expect, done := s.timeout.LimitBody(ctx)
	defer done()
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{
		Bucket: &s.cfg.Bucket,
		Key:    aws.String(s.prefix.Key(name)),
	})
	if err != nil {
		return nil, dateOfError(err), s.answered(ctx, name, err)
	}
	defer out.Body.Close()
	at = dateOf(out.ResultMetadata)
	length := aws.ToInt64(out.ContentLength)
	expect(length)
	data, err = bucket.ReadBody(out.Body, name, length, most)
	if err != nil && !errors.Is(err, bucket.ErrTooLong) {
		err = s.answered(ctx, name, err)
	}
	return data, at, err
}

// Exists implements bucket.Store. It reads one byte of the object, because a HEAD
// does not tell a missing key from a missing bucket.
func (s *Store) Exists(ctx context.Context, name string) (bool, error) {
	ctx, cancel := s.timeout.Limit(ctx, 0)
	defer cancel()
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{
		Bucket: &s.cfg.Bucket,
		Key:    aws.String(s.prefix.Key(name)),
		Range:  aws.String("bytes=0-0"),
	})
	switch err := s.answered(ctx, name, err); {
	case err == nil:
		return true, out.Body.Close()
	case statusOf(err) == http.StatusRequestedRangeNotSatisfiable:
		return true, nil // it is there, and empty
	default:
		return bucket.There(err)
	}
}

// Remove implements bucket.Store, by one DELETE.
func (s *Store) Remove(ctx context.Context, name string) error {
	ctx, cancel := s.timeout.Limit(ctx, 0)
	defer cancel()
	_, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{
		Bucket: &s.cfg.Bucket,
		Key:    aws.String(s.prefix.Key(name)),
	})
	return bucket.Gone(s.answered(ctx, name, err))
}

// List implements bucket.Store, by one LIST.
func (s *Store) List(ctx context.Context, prefix, start, next string) (bucket.Page, error) {
	ctx, cancel := s.timeout.Limit(ctx, 1<<20)
	defer cancel()
	in := &s3.ListObjectsV2Input{
		Bucket:  &s.cfg.Bucket,
		Prefix:  aws.String(s.prefix.Key(prefix)),
		MaxKeys: aws.Int32(bucket.MaxPage),
	}
	switch {
	case next != "":
		in.ContinuationToken = &next
	case start != "":
		in.StartAfter = aws.String(s.prefix.Key(start))
	}
	out, err := s.client.ListObjectsV2(ctx, in)
	if err != nil {
		return bucket.Page{}, s.answered(ctx, prefix, err)
	}
	page := bucket.Page{At: dateOf(out.ResultMetadata), Objects: make([]bucket.Object, len(out.Contents))}
	for i, object := range out.Contents {
		name := s.prefix.Name(aws.ToString(object.Key))
		page.Objects[i] = bucket.Object{Name: name, Modified: aws.ToTime(object.LastModified)}
	}
	if aws.ToBool(out.IsTruncated) {
		if page.Next = aws.ToString(out.NextContinuationToken); page.Next == "" {
			return bucket.Page{}, bucket.Failure(nil, true, nil, fmt.Sprintf("the listing of %s/%s is cut off, and does not say where it goes on", s.cfg.Location(), prefix))
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
