package s3log

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/blobname"
)

// A blob's parts are joined by separator in its key, not by "/": some stores
// keep keys as files, and refuse "a" beside "a/b".
const separator = "!"

// maxBlobName is the length of the longest name of a blob, in bytes: with a
// prefix before it, a key has at most 1,024.
const maxBlobName = 512

// blobKey is the name of the object that holds the blob.
func blobKey(name string) (string, error) {
	if len(name) > maxBlobName {
		return "", fmt.Errorf("blob name %q is not valid: it has more than %d bytes", name, maxBlobName)
	}
	if err := blobname.Check(name); err != nil {
		return "", fmt.Errorf("blob name %q is not valid: %w", name, err)
	}
	return blobPrefix + strings.ReplaceAll(name, "/", separator), nil
}

// PutBlob implements journal.Blobs.
func (l *Log) PutBlob(ctx context.Context, name string, data []byte) error {
	key, err := blobKey(name)
	if err != nil {
		return err
	}
	if l.cfg.ReadOnly {
		return errReadOnly
	}
	ctx, done, err := l.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	frame := encodeFrame(key, l.info.ID, data)
	err = l.again(ctx, func() error {
		_, err := l.put(ctx, key, frame, anyway)
		return err
	})
	if err != nil {
		return fmt.Errorf("put blob %s: %w", name, err)
	}
	return nil
}

// GetBlob implements journal.Blobs.
func (l *Log) GetBlob(ctx context.Context, name string) ([]byte, error) {
	key, err := blobKey(name)
	if err != nil {
		return nil, err
	}
	ctx, done, err := l.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	data, _, err := l.getFrame(ctx, key, int64(frameHeader+journal.MaxBlob))
	if errors.Is(err, errAbsent) {
		return nil, fmt.Errorf("get blob %s: %w", name, journal.ErrNoBlob)
	}
	if err != nil {
		return nil, fmt.Errorf("get blob %s: %w", name, err)
	}
	return data, nil
}

// ListBlobs implements journal.Blobs.
func (l *Log) ListBlobs(ctx context.Context, prefix string) ([]string, error) {
	ctx, done, err := l.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if strings.Contains(prefix, separator) {
		return nil, nil
	}
	var names blobname.List
	var token *string
	for {
		var page *s3.ListObjectsV2Output
		err := l.again(ctx, func() (err error) {
			page, err = l.list(ctx, blobPrefix+strings.ReplaceAll(prefix, "/", separator), "", token, 1000)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("list blobs: %w", err)
		}
		for _, object := range page.Contents {
			name := strings.TrimPrefix(aws.ToString(object.Key), l.cfg.key(blobPrefix))
			name = strings.ReplaceAll(name, separator, "/")
			if _, err := blobKey(name); err == nil { // else not ours
				names.Add(name)
			}
		}
		if !aws.ToBool(page.IsTruncated) {
			return names.Sorted(), nil
		}
		token = page.NextContinuationToken
	}
}

// DeleteBlob implements journal.Blobs.
func (l *Log) DeleteBlob(ctx context.Context, name string) error {
	key, err := blobKey(name)
	if err != nil {
		return err
	}
	if l.cfg.ReadOnly {
		return errReadOnly
	}
	ctx, done, err := l.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := l.again(ctx, func() error { return l.remove(ctx, key) }); err != nil {
		return fmt.Errorf("delete blob %s: %w", name, err)
	}
	return nil
}
