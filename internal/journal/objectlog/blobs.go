package objectlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/blobname"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
)

// A blob's parts are joined by separator in its key, not by "/": some stores
// keep keys as files, and refuse "a" beside "a/b".
const separator = "!"

// blobs keeps the blobs beside a journal. It implements journal.Blobs.
type blobs struct {
	calls  calls
	frames frames
}

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
func (b blobs) PutBlob(ctx context.Context, name string, data []byte) error {
	key, err := blobKey(name)
	if err != nil {
		return err
	}
	ctx, done, err := b.calls.beginWrite(ctx)
	if err != nil {
		return err
	}
	defer done()
	frame := b.frames.encode(key, data)
	err = b.calls.bucket.Again(ctx, func() error {
		_, err := b.calls.bucket.Create(ctx, key, frame)
		return err
	})
	if errors.Is(err, bucket.ErrExists) || bucket.Passing(err) && b.holds(ctx, key) {
		err = b.replace(ctx, key, data, frame)
	}
	if err != nil {
		return fmt.Errorf("put blob %s: %w", name, err)
	}
	return nil
}

// holds says whether there is a blob at key, after a PUT that met trouble each time: a
// store may refuse a PUT before it has read the body, and its refusal is then lost with
// the connection that it closes.
func (b blobs) holds(ctx context.Context, key string) bool {
	_, _, err := b.frames.get(ctx, key, journal.MaxBlob)
	return err == nil
}

// replace brings data to key, which holds a blob, perhaps by an earlier PUT of the
// same caller. The bucket may allow no PUT without a condition, so replace sends one
// only if the blob there is another.
func (b blobs) replace(ctx context.Context, key string, data, frame []byte) error {
	got, _, err := b.frames.get(ctx, key, journal.MaxBlob)
	if err == nil && bytes.Equal(got, data) {
		return nil
	}
	return b.calls.bucket.Again(ctx, func() error { return b.calls.bucket.Put(ctx, key, frame) })
}

// GetBlob implements journal.Blobs.
func (b blobs) GetBlob(ctx context.Context, name string) ([]byte, error) {
	key, err := blobKey(name)
	if err != nil {
		return nil, err
	}
	ctx, done, err := b.calls.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	data, _, err := b.frames.get(ctx, key, journal.MaxBlob)
	if errors.Is(err, bucket.ErrAbsent) {
		return nil, fmt.Errorf("get blob %s: %w", name, journal.ErrNoBlob)
	}
	if err != nil {
		return nil, fmt.Errorf("get blob %s: %w", name, err)
	}
	return data, nil
}

// ListBlobs implements journal.Blobs.
func (b blobs) ListBlobs(ctx context.Context, prefix string) ([]string, error) {
	ctx, done, err := b.calls.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if strings.Contains(prefix, separator) {
		return nil, nil
	}
	var names blobname.List
	next := ""
	for {
		var page bucket.Page
		err := b.calls.bucket.Again(ctx, func() (err error) {
			page, err = b.calls.bucket.List(ctx, blobPrefix+strings.ReplaceAll(prefix, "/", separator), "", next)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("list blobs: %w", err)
		}
		for _, object := range page.Objects {
			name := strings.ReplaceAll(strings.TrimPrefix(object.Name, blobPrefix), separator, "/")
			if _, err := blobKey(name); err == nil { // else not ours
				names.Add(name)
			}
		}
		if next = page.Next; next == "" {
			return names.Sorted(), nil
		}
	}
}

// DeleteBlob implements journal.Blobs.
func (b blobs) DeleteBlob(ctx context.Context, name string) error {
	key, err := blobKey(name)
	if err != nil {
		return err
	}
	ctx, done, err := b.calls.beginWrite(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := b.calls.bucket.Again(ctx, func() error { return b.calls.bucket.Remove(ctx, key) }); err != nil {
		return fmt.Errorf("delete blob %s: %w", name, err)
	}
	return nil
}
