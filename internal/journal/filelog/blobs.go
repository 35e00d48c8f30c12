package filelog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/blobname"
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
	if len(file)+len(".18446744073709551615"+tmpSuffix) > maxFile {
		return "", errors.New("the name is too long for a file")
	}
	return file, nil
}

// blobName is the inverse of blobFile; ok is false for other files.
func blobName(file string) (name string, ok bool) {
	name, ok = strings.CutSuffix(file, blobSuffix)
	return strings.ReplaceAll(name, "%2F", "/"), ok
}

func (l *Log) blobDir() string { return filepath.Join(l.dir, blobDir) }

// begin is the start of every call that has to do with a blob.
func (l *Log) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.isClosed() {
		return journal.ErrClosed
	}
	return nil
}

// PutBlob implements journal.Blobs.
func (l *Log) PutBlob(ctx context.Context, name string, data []byte) error {
	file, err := blobFile(name)
	if err == nil && len(data) > journal.MaxBlob {
		err = fmt.Errorf("%d bytes, at most %d", len(data), journal.MaxBlob)
	}
	if err == nil {
		err = l.begin(ctx)
	}
	if err == nil {
		path := filepath.Join(l.blobDir(), file)
		err = replaceFile(l.fs, path, fmt.Sprintf("%s.%d%s", path, l.blobSeq.Add(1), tmpSuffix), data)
	}
	if err != nil {
		return fmt.Errorf("put blob %q: %w", name, err)
	}
	return nil
}

// GetBlob implements journal.Blobs.
func (l *Log) GetBlob(ctx context.Context, name string) ([]byte, error) {
	if err := l.begin(ctx); err != nil {
		return nil, fmt.Errorf("get blob %q: %w", name, err)
	}
	return getBlob(l.fs, l.dir, name)
}

func getBlob(vfs vfs, dir, name string) ([]byte, error) {
	file, err := blobFile(name)
	if err != nil {
		return nil, fmt.Errorf("get blob %q: %w", name, err)
	}
	data, err := readFile(vfs, filepath.Join(dir, blobDir, file), journal.MaxBlob)
	if errors.Is(err, fs.ErrNotExist) {
		err = journal.ErrNoBlob
	}
	if err != nil {
		return nil, fmt.Errorf("get blob %q: %w", name, err)
	}
	return data, nil
}

// ListBlobs implements journal.Blobs.
func (l *Log) ListBlobs(ctx context.Context, prefix string) ([]string, error) {
	if err := l.begin(ctx); err != nil {
		return nil, fmt.Errorf("list blobs %q: %w", prefix, err)
	}
	return listBlobs(l.fs, l.dir, prefix)
}

func listBlobs(fs vfs, dir, prefix string) ([]string, error) {
	files, err := fs.ReadDir(filepath.Join(dir, blobDir))
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
func (l *Log) DeleteBlob(ctx context.Context, name string) error {
	file, err := blobFile(name)
	if err == nil {
		err = l.begin(ctx)
	}
	if err == nil {
		err = l.fs.Remove(filepath.Join(l.blobDir(), file))
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("delete blob %q: %w", name, err)
	}
	if err := l.fs.SyncDir(l.blobDir()); err != nil {
		return fmt.Errorf("delete blob %q: %w", name, err)
	}
	return nil
}
