package sqllog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/blobname"
)

// maxName is the length of the longest name of a blob that is listed, in bytes. The
// replicas' own are far shorter.
const maxName = 1000

// blobs implements journal.Blobs.
type blobs struct{ db *database }

// PutBlob implements journal.Blobs.
func (b blobs) PutBlob(ctx context.Context, name string, data []byte) error {
	if err := blobname.Check(name); err != nil {
		return fmt.Errorf("put blob %q: %w", name, err)
	}
	if len(data) > journal.MaxBlob {
		return fmt.Errorf("put blob %s: %d bytes, at most %d", name, len(data), journal.MaxBlob)
	}
	ctx, done, err := b.db.beginWrite(ctx)
	if err != nil {
		return err
	}
	defer done()
	_, err = b.db.change(ctx, `INSERT INTO {blobs} (name, data) VALUES ($1, $2)
		ON CONFLICT (name) DO UPDATE SET data = excluded.data`, []byte(name), notNull(data))
	if err != nil {
		return fmt.Errorf("put blob %s: %w", name, ended(ctx, err))
	}
	return nil
}

// GetBlob implements journal.Blobs.
func (b blobs) GetBlob(ctx context.Context, name string) ([]byte, error) {
	ctx, done, err := b.db.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	var size int64
	var data []byte
	found := false
	err = b.db.each(ctx, `SELECT length(data), CASE WHEN length(data) <= $2::INT8 THEN data END FROM {blobs} WHERE name = $1`,
		[]any{[]byte(name), int64(journal.MaxBlob)}, func(r pgx.Row) error {
			found = true
			return r.Scan(&size, &data)
		}, func() { found = false })
	switch {
	case err != nil:
		return nil, fmt.Errorf("get blob %s: %w", name, ended(ctx, err))
	case !found:
		return nil, fmt.Errorf("get blob %s: %w", name, journal.ErrNoBlob)
	case data == nil:
		return nil, fmt.Errorf("get blob %s: %d bytes: %w", name, size, journal.ErrCorrupt)
	}
	return data, nil
}

// ListBlobs implements journal.Blobs. It asks for the last names only, and for one
// more than are returned.
func (b blobs) ListBlobs(ctx context.Context, prefix string) ([]string, error) {
	ctx, done, err := b.db.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	var names blobname.List
	err = b.db.each(ctx, `SELECT name FROM {blobs} WHERE name >= $1 AND name < $2 AND length(name) <= $4::INT8 ORDER BY name DESC LIMIT $3`,
		[]any{[]byte(prefix), append([]byte(prefix), 0xff), int64(journal.MaxListed + 1), maxName}, func(r pgx.Row) error {
			var name []byte
			err := r.Scan(&name)
			names.Add(string(name))
			return err
		}, func() { names = blobname.List{} })
	if err != nil {
		return nil, fmt.Errorf("list blobs %s: %w", prefix, ended(ctx, err))
	}
	return names.Sorted(), nil
}

// DeleteBlob implements journal.Blobs.
func (b blobs) DeleteBlob(ctx context.Context, name string) error {
	ctx, done, err := b.db.beginWrite(ctx)
	if err != nil {
		return err
	}
	defer done()
	if _, err := b.db.change(ctx, `DELETE FROM {blobs} WHERE name = $1`, []byte(name)); err != nil {
		return fmt.Errorf("delete blob %s: %w", name, ended(ctx, err))
	}
	return nil
}
