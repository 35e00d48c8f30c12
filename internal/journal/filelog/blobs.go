package filelog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/blobname"
	"github.com/xbernetes/xbernetes/internal/journal/filelog/disk"
)

// A blob is a file in blobs/, flat: its name with each "/" as "%2F", and
// ".blob" behind, so that no name is special to the file system.
const (
	blobSuffix = ".blob"
	maxFile    = 255 // bytes in a file's name, on every common file system
)

// blobFile returns the name of the file for the blob name.
func blobFile(name string) (string, error) {
	if err := blobname.Check(name); err != nil {
		return "", err
	}
	file := strings.ReplaceAll(name, "/", "%2F") + blobSuffix
	if len(file)+len(".18446744073709551615"+disk.TmpSuffix) > maxFile {
		return "", errors.New("the name is too long for a file")
	}
	return file, nil
}

// blobName is the inverse of blobFile; ok is false for other files.
func blobName(file string) (name string, ok bool) {
	name, ok = strings.CutSuffix(file, blobSuffix)
	return strings.ReplaceAll(name, "%2F", "/"), ok
}

// blobs keeps the blobs beside a journal. It implements journal.Blobs. What would
// write is ErrReadOnly if the journal was opened for reading only.
type blobs struct {
	fs       disk.FS
	dir      string
	readOnly bool
	closed   atomic.Bool   // no call begins once this is set
	count    atomic.Uint64 // of PutBlobs: what their temporary files are named by
}

// begin is the start of every call.
func (b *blobs) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if b.closed.Load() {
		return journal.ErrClosed
	}
	return nil
}

// PutBlob implements journal.Blobs.
func (b *blobs) PutBlob(ctx context.Context, name string, data []byte) error {
	if err := b.put(ctx, name, data); err != nil {
		return fmt.Errorf("put blob %q: %w", name, err)
	}
	return nil
}

func (b *blobs) put(ctx context.Context, name string, data []byte) error {
	if b.readOnly {
		return ErrReadOnly
	}
	file, err := blobFile(name)
	if err != nil {
		return err
	}
	if len(data) > journal.MaxBlob {
		return fmt.Errorf("%d bytes, at most %d", len(data), journal.MaxBlob)
	}
	if err := b.begin(ctx); err != nil {
		return err
	}
	path := filepath.Join(b.dir, file)
	return disk.Replace(b.fs, path, fmt.Sprintf("%s.%d%s", path, b.count.Add(1), disk.TmpSuffix), data)
}

// GetBlob implements journal.Blobs.
func (b *blobs) GetBlob(ctx context.Context, name string) ([]byte, error) {
	data, err := b.get(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		err = journal.ErrNoBlob
	}
	if err != nil {
		return nil, fmt.Errorf("get blob %q: %w", name, err)
	}
	return data, nil
}

func (b *blobs) get(ctx context.Context, name string) ([]byte, error) {
	if err := b.begin(ctx); err != nil {
		return nil, err
	}
	file, err := blobFile(name)
	if err != nil {
		return nil, err
	}
	return readFile(b.fs, filepath.Join(b.dir, file), journal.MaxBlob)
}

// ListBlobs implements journal.Blobs.
func (b *blobs) ListBlobs(ctx context.Context, prefix string) ([]string, error) {
	if err := b.begin(ctx); err != nil {
		return nil, fmt.Errorf("list blobs %q: %w", prefix, err)
	}
	files, err := b.fs.ReadDir(b.dir)
	if err != nil {
		return nil, fmt.Errorf("list blobs %q: %w", prefix, err)
	}
	var names blobname.List
	for _, file := range files {
		if name, ok := blobName(file); ok && strings.HasPrefix(name, prefix) {
			names.Add(name)
		}
	}
	return names.Sorted(), nil
}

// DeleteBlob implements journal.Blobs.
func (b *blobs) DeleteBlob(ctx context.Context, name string) error {
	if err := b.delete(ctx, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete blob %q: %w", name, err)
	}
	return nil
}

func (b *blobs) delete(ctx context.Context, name string) error {
	if b.readOnly {
		return ErrReadOnly
	}
	file, err := blobFile(name)
	if err != nil {
		return err
	}
	if err := b.begin(ctx); err != nil {
		return err
	}
	if err := b.fs.Remove(filepath.Join(b.dir, file)); err != nil {
		return err
	}
	return b.fs.SyncDir(b.dir)
}
