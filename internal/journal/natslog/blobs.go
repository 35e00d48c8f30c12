package natslog

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/blobname"
)

const (
	// maxName is the length of the longest name of a blob, in bytes: subjects are
	// bounded too.
	maxName = 1000
	// leastChunk and mostChunk bound the length of a blob's parts, in bytes.
	leastChunk = leastRecord
	mostChunk  = 1 << 20
	// maxHead is the length of the longest head, in bytes.
	maxHead = 1 << 10
	// tidyTimeout bounds the removal of chunks that nobody needs.
	tidyTimeout = 5 * time.Second
)

// blobs implements journal.Blobs. A blob is its head, and chunks that the head names.
type blobs struct {
	stream
	id      journal.ID
	journal string // its name
	most    int    // the length of the longest chunk, in bytes
}

// head says what a blob holds. It is published once its chunks are stored, and so the
// blob is there whole or not at all.
type head struct {
	Size  int    `json:"size"`
	Chunk int    `json:"chunk"` // the length of each chunk but the last
	Part  string `json:"part"`  // names the chunks: 26 characters
	Sum   []byte `json:"sum"`   // SHA-256 of the blob
}

// chunks is how many chunks the blob has.
func (h head) chunks() int { return (h.Size + h.Chunk - 1) / h.Chunk }

func decodeHead(data []byte) (h head, err error) {
	if err := json.Unmarshal(data, &h); err != nil {
		return h, fmt.Errorf("its head cannot be read: %w", journal.ErrCorrupt)
	}
	if h.Size < 0 || h.Size > journal.MaxBlob || h.Chunk < leastChunk || h.Chunk > mostChunk || len(h.Sum) != sha256.Size || len(h.Part) != len(rand.Text()) || strings.Trim(h.Part, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") != "" {
		return h, fmt.Errorf("its head says what cannot be: %w", journal.ErrCorrupt)
	}
	return h, nil
}

// token is a name as the end of a subject: a token for each part.
func token(name string) string { return strings.NewReplacer("/", ".", ".", ",").Replace(name) }

// untoken is the name that token made a token of.
func untoken(token string) string { return strings.NewReplacer(".", "/", ",", ".").Replace(token) }

func (b blobs) headSubject(name string) string { return b.journal + ".blob." + token(name) }

func (b blobs) chunkSubject(name, part, number string) string {
	return b.journal + ".chunk." + token(name) + "." + part + "." + number
}

// head returns the head of a blob, and its sequence number: 0 if there is no blob.
func (b blobs) head(ctx context.Context, name string) (h head, seq uint64, err error) {
	var msg message
	for range 3 { // in case it was altered on the way
		var data []byte
		msg, err = b.get(ctx, get{Last: b.headSubject(name)}, maxHead)
		switch {
		case errors.Is(err, errAbsent):
			return h, 0, nil
		case err == nil:
			data, err = decodeFrame("blob/"+name, b.id, msg.Data)
		}
		if err == nil {
			h, err = decodeHead(data)
		}
		if !errors.Is(err, journal.ErrCorrupt) {
			return h, msg.Seq, err
		}
	}
	return h, msg.Seq, err
}

// PutBlob implements journal.Blobs.
func (b blobs) PutBlob(ctx context.Context, name string, data []byte) error {
	if err := b.server.beginWrite(ctx); err != nil {
		return err
	}
	err := blobname.Check(name)
	switch {
	case err != nil:
		return fmt.Errorf("put blob %q: %w", name, err)
	case len(name) > maxName:
		return fmt.Errorf("put blob: its name has %d bytes, at most %d", len(name), maxName)
	case len(data) > journal.MaxBlob:
		return fmt.Errorf("put blob %s: %d bytes, at most %d", name, len(data), journal.MaxBlob)
	}
	sum := sha256.Sum256(data)
	h := head{Size: len(data), Chunk: min(mostChunk, b.most), Part: rand.Text(), Sum: sum[:]}
	err = b.putChunks(ctx, name, h, data)
	if err == nil {
		err = b.putHead(ctx, name, h)
	}
	if err != nil {
		return fmt.Errorf("put blob %s: %w", name, err)
	}
	return nil
}

func (b blobs) putChunks(ctx context.Context, name string, h head, data []byte) error {
	puts, putCtx := errgroup.WithContext(ctx)
	puts.SetLimit(4)
	n := 0
	for chunk := range slices.Chunk(data, h.Chunk) {
		subject := b.chunkSubject(name, h.Part, strconv.Itoa(n))
		puts.Go(func() error {
			_, err := b.server.publish(putCtx, subject, nil, chunk)
			return err
		})
		n++
	}
	err := puts.Wait()
	if err != nil {
		b.deleteChunks(ctx, name, h)
	}
	return err
}

// putHead stores the head in place of the one that is there, and deletes the chunks of
// that one. If another server has replaced it meanwhile, it replaces the other's.
func (b blobs) putHead(ctx context.Context, name string, h head) error {
	data, err := json.Marshal(h)
	if err != nil {
		return err
	}
	frame := format.Encode("blob/"+name, b.id, data)
	for n := 1; ; n++ {
		old, seq, err := b.head(ctx, name)
		if err != nil && !errors.Is(err, journal.ErrCorrupt) {
			return err
		}
		_, err = b.server.publish(ctx, b.headSubject(name), condition(jetstream.ExpectedLastSubjSeqHeader, seq), frame)
		switch {
		case err == nil && seq != 0:
			b.deleteChunks(ctx, name, old)
			return nil
		case !isCode(err, codeWrongLast, codeWrongLastReplicated):
			return err
		}
		if err := between.Pause(ctx, n); err != nil {
			return err
		}
	}
}

// deleteChunks deletes chunks that no head names. If it fails, they are left until the
// blob is deleted.
func (b blobs) deleteChunks(ctx context.Context, name string, h head) {
	if h.Size == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTimeout)
	defer cancel()
	_, _ = b.purge(ctx, purge{Filter: b.chunkSubject(name, h.Part, "*")})
}

// GetBlob implements journal.Blobs. If the blob is replaced while it is read, it is
// read again.
func (b blobs) GetBlob(ctx context.Context, name string) ([]byte, error) {
	if err := b.server.begin(ctx); err != nil {
		return nil, err
	}
	if blobname.Check(name) != nil || len(name) > maxName {
		return nil, fmt.Errorf("get blob %q: %w", name, journal.ErrNoBlob)
	}
	h, seq, err := b.head(ctx, name)
	for err == nil && seq != 0 {
		var data []byte
		if data, err = b.getChunks(ctx, name, h); err == nil {
			return data, nil
		}
		now, nowSeq, headErr := b.head(ctx, name)
		if headErr != nil || nowSeq == seq {
			break
		}
		h, seq, err = now, nowSeq, nil
	}
	if err == nil || errors.Is(err, errAbsent) {
		err = journal.ErrNoBlob
	}
	return nil, fmt.Errorf("get blob %s: %w", name, err)
}

func (b blobs) getChunks(ctx context.Context, name string, h head) ([]byte, error) {
	data := make([]byte, h.Size)
	gets, ctx := errgroup.WithContext(ctx)
	gets.SetLimit(inParallel(h.Chunk))
	for n := range h.chunks() {
		place := data[n*h.Chunk : min((n+1)*h.Chunk, h.Size)]
		gets.Go(func() error {
			msg, err := b.get(ctx, get{Last: b.chunkSubject(name, h.Part, strconv.Itoa(n))}, h.Chunk)
			if err == nil && len(msg.Data) != len(place) {
				err = fmt.Errorf("chunk %d has %d bytes: %w", n, len(msg.Data), journal.ErrCorrupt)
			}
			copy(place, msg.Data)
			return err
		})
	}
	if err := gets.Wait(); err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(data); string(sum[:]) != string(h.Sum) {
		return nil, fmt.Errorf("it does not match its checksum: %w", journal.ErrCorrupt)
	}
	return data, nil
}

// ListBlobs implements journal.Blobs. The server chooses how many names are on a page,
// at most 100,000.
func (b blobs) ListBlobs(ctx context.Context, prefix string) ([]string, error) {
	if err := b.server.begin(ctx); err != nil {
		return nil, err
	}
	start := b.journal + ".blob."
	filter := start + ">"
	if folder, _, ok := cutLast(prefix, "/"); ok && blobname.Check(folder) == nil {
		filter = start + token(folder) + ".>"
	}
	var names blobname.List
	for offset := 0; ; {
		page, err := b.look(ctx, infoRequest{Filter: filter, Offset: offset})
		if err != nil {
			return nil, fmt.Errorf("list blobs %s: %w", prefix, err)
		}
		for subject := range page.State.Subjects {
			name := untoken(strings.TrimPrefix(subject, start))
			if strings.HasPrefix(name, prefix) && len(name) <= maxName && blobname.Check(name) == nil {
				names.Add(name)
			}
		}
		offset += len(page.State.Subjects)
		if len(page.State.Subjects) == 0 || offset >= page.Total {
			return names.Sorted(), nil
		}
	}
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// DeleteBlob implements journal.Blobs. It also deletes what an interrupted PutBlob left.
func (b blobs) DeleteBlob(ctx context.Context, name string) error {
	if err := b.server.beginWrite(ctx); err != nil {
		return err
	}
	if blobname.Check(name) != nil || len(name) > maxName {
		return nil // no such blob can be there
	}
	for _, filter := range []string{b.headSubject(name), b.chunkSubject(name, "*", "*")} {
		if _, err := b.purge(ctx, purge{Filter: filter}); err != nil {
			return fmt.Errorf("delete blob %s: %w", name, err)
		}
	}
	return nil
}
