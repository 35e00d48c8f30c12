package objectlog

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/probe"
)

// Open opens the journal in store, and creates it where there is none, unless
// it is to be read only. Of several processes that create it at once, all get the
// same one. A store whose conditional create is not safe is refused: it is tried
// first, on keys under probe/. After an error nothing is left in the store
// that was not there, other than such a key where deleting it is denied.
//
// The Log owns store; after an error it is closed. Errors: one sentence that
// names the thing and what to do. A journal of a newer format is
// journal.ErrNewerFormat.
func Open(ctx context.Context, store bucket.Store, opts Options) (*Log, error) {
	b := bucket.New(store, opts.RequestTimeout)
	logger := opts.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	id, err := findOrCreate(ctx, b, opts.ReadOnly, logger)
	if err != nil {
		b.Close()
		return nil, fmt.Errorf("open journal %s: %w", b.Names().Location, err)
	}
	t := newTail(depth)
	l := &Log{
		info:   journal.Info{ID: id, MaxRecord: maxRecord, Depth: depth},
		logger: logger,
		calls:  calls{b, opts.ReadOnly},
		frames: frames{b, id},
		floors: newFloors(b, t),
		tail:   t,
	}
	l.blobs = blobs{l.calls, l.frames}
	return l, nil
}

// findOrCreate returns the id of the journal in the bucket, which it creates if
// there is none, unless it may only read.
func findOrCreate(ctx context.Context, b *bucket.Bucket, readOnly bool, logger *slog.Logger) (journal.ID, error) {
	id, err := readMeta(ctx, b)
	switch {
	case errors.Is(err, bucket.ErrAbsent) && readOnly:
		return id, fmt.Errorf("there is no journal at %s; correct --journal", b.Names().Location)
	case errors.Is(err, bucket.ErrAbsent):
		return create(ctx, b, logger)
	case err == nil && !readOnly:
		err = probe.Run(ctx, b, logger)
	}
	return id, err
}

// meta is the content of meta.json.
type meta struct {
	Format  int       `json:"format"`
	Journal string    `json:"journal"`
	Created time.Time `json:"created"`
}

// maxMeta is more than meta.json ever has, in bytes.
const maxMeta = 1 << 20

// readMeta returns the id in meta.json. If there is none, the error is
// bucket.ErrAbsent.
func readMeta(ctx context.Context, b *bucket.Bucket) (journal.ID, error) {
	var data []byte
	var at time.Time
	err := b.Again(ctx, func() (err error) {
		data, at, err = b.Get(ctx, metaName, maxMeta)
		return err
	})
	if err != nil {
		return journal.ID{}, err
	}
	if at.IsZero() {
		return journal.ID{}, b.Undated()
	}
	return decodeMeta(data)
}

// decodeMeta returns the id of the journal that meta.json describes.
func decodeMeta(data []byte) (journal.ID, error) {
	var m meta
	var id journal.ID
	err := json.Unmarshal(data, &m)
	if err == nil && m.Format > journal.FormatVersion { // whose other fields may differ
		return id, journal.CheckFormat(m.Format)
	}
	raw, hexErr := hex.DecodeString(m.Journal)
	if err != nil || hexErr != nil || len(raw) != len(id) || m.Format < 1 {
		return id, fmt.Errorf("%s does not describe a journal; restore it from a backup or an older version of the object: %w", metaName, journal.ErrCorrupt)
	}
	copy(id[:], raw)
	// The floor of older ones was one object that was replaced: unseen, it would make
	// empty slots of trimmed ones.
	return id, journal.CheckFormat(m.Format)
}

// create writes meta.json, or takes the one that another process wrote first.
func create(ctx context.Context, b *bucket.Bucket, logger *slog.Logger) (journal.ID, error) {
	var slots bucket.Page
	err := b.Again(ctx, func() (err error) {
		slots, err = b.List(ctx, slotPrefix, "", "")
		return err
	})
	if err != nil {
		return journal.ID{}, err
	}
	if len(slots.Objects) > 0 {
		return journal.ID{}, fmt.Errorf("there are slots but no %s; restore it from a backup or an older version of the object, or choose another prefix", metaName)
	}
	if err := probe.Run(ctx, b, logger); err != nil {
		return journal.ID{}, err
	}
	var id journal.ID
	_, _ = rand.Read(id[:]) // never fails
	data, err := json.Marshal(meta{Format: journal.FormatVersion, Journal: id.String(), Created: time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return journal.ID{}, fmt.Errorf("encode %s: %w", metaName, err)
	}
	err = b.Again(ctx, func() error {
		_, err := b.Create(ctx, metaName, data)
		if errors.Is(err, bucket.ErrExists) {
			return nil // by another process, or by a PUT of ours that seemed to fail
		}
		return err
	})
	if err != nil {
		return journal.ID{}, err
	}
	return readMeta(ctx, b)
}
