package s3log

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// A blob's parts are joined by separator in its key, not by "/": some stores
// keep keys as files, and refuse "a" beside "a/b".
const separator = "!"

var blobNamePattern = regexp.MustCompile(`^[a-z0-9._-]+(/[a-z0-9._-]+)*$`)

// blobKey is the name of the object that holds the blob.
func blobKey(name string) (string, error) {
	if !blobNamePattern.MatchString(name) || len(name) > 512 {
		return "", fmt.Errorf("blob name %q is not valid; it has parts of a-z, 0-9 and . _ - joined by single slashes", name)
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "." || part == ".." {
			return "", fmt.Errorf("blob name %q is not valid; . and .. are no parts", name)
		}
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
	var names []string
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
				names = append(names, name)
			}
		}
		if !aws.ToBool(page.IsTruncated) {
			slices.Sort(names)
			return names, nil
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
