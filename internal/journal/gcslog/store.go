package gcslog

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"strings"
	"time"

	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"
	storage "google.golang.org/api/storage/v1"
	htransport "google.golang.org/api/transport/http"

	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
)

// store is the part of a bucket below one prefix. It implements bucket.Store.
// The SDK repeats no request unless WithRetry is called, and nobody does.
type store struct {
	cfg     Config // valid
	timeout bucket.Timeout
	objects *storage.ObjectsService
	conns   *http.Transport
}

var _ bucket.Store = (*store)(nil)

// open makes a client for the store. It sends nothing to it. The error is one
// sentence that names what is wrong and what to do.
func open(ctx context.Context, cfg Config) (*store, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	conns := bucket.Connections()
	var trip http.RoundTripper = bucket.OnlyStores{RoundTripper: conns, Lacks: lacks}
	if !cfg.Anonymous {
		// The context outlives this call: tokens are fetched later, too.
		signed, err := htransport.NewTransport(context.WithoutCancel(ctx), trip, option.WithScopes(storage.DevstorageReadWriteScope), option.WithTelemetryDisabled())
		if err != nil {
			return nil, bucket.Explained(err, fmt.Sprintf("no credentials for %s (%v); give them by %s", cfg.store(), bucket.Root(err), credentialsAre))
		}
		trip = signed
	}
	options := []option.ClientOption{option.WithHTTPClient(&http.Client{Transport: trip, CheckRedirect: bucket.NoRedirect})}
	if cfg.Endpoint != "" {
		options = append(options, option.WithEndpoint(strings.TrimSuffix(cfg.Endpoint, "/")+"/storage/v1/"))
	}
	service, err := storage.NewService(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", cfg.store(), err)
	}
	return &store{cfg, bucket.Timeout(cfg.RequestTimeout), service.Objects, conns}, nil
}

// lacks says what a success lacks that the store always sends.
func lacks(r *http.Request, resp *http.Response) string {
	if r.URL.Query().Get("alt") == "media" && r.Method == http.MethodGet && resp.Header.Get("X-Goog-Generation") == "" {
		return "a generation"
	}
	return ""
}

// Names implements bucket.Store.
func (s *store) Names() bucket.Names {
	return bucket.Names{Location: s.cfg.location(), Store: s.cfg.store(), Create: "upload with ifGenerationMatch=0", Delete: "storage.objects.delete"}
}

// Close implements bucket.Store.
func (s *store) Close() { s.conns.CloseIdleConnections() }

// Create implements bucket.Store, by one upload on the condition that the object
// has no generation.
func (s *store) Create(ctx context.Context, name string, body []byte) (at time.Time, err error) {
	return s.upload(ctx, name, body, true)
}

// Put implements bucket.Store, by one upload.
func (s *store) Put(ctx context.Context, name string, body []byte) error {
	_, err := s.upload(ctx, name, body, false)
	return err
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// upload sends body as the object of that name, by one request. The store checks it
// against its CRC-32C.
func (s *store) upload(ctx context.Context, name string, body []byte, create bool) (at time.Time, err error) {
	ctx, cancel := s.timeout.Limit(ctx, len(body))
	defer cancel()
	key := s.cfg.Prefix.Key(name)
	sum := binary.BigEndian.AppendUint32(nil, crc32.Checksum(body, castagnoli))
	call := s.objects.Insert(s.cfg.Bucket, &storage.Object{Name: key, Crc32c: base64.StdEncoding.EncodeToString(sum)}).
		Name(key).Fields("name", "generation").Context(ctx).
		Media(bytes.NewReader(body), googleapi.ContentType("application/octet-stream"), googleapi.ChunkSize(0))
	if create {
		call = call.IfGenerationMatch(0)
	}
	got, err := call.Do()
	if err == nil && (got.Name != key || got.Generation == 0) {
		err = errors.New("it confirms another object than the one that was sent")
	}
	if err != nil {
		return at, s.answered(ctx, err)
	}
	return bucket.Date(got.Header), nil
}

// Get implements bucket.Store, by one download.
func (s *store) Get(ctx context.Context, name string, most int64) (data []byte, at time.Time, err error) {
	ctx, expect, done := s.timeout.LimitBody(ctx)
	defer done()
	resp, err := s.objects.Get(s.cfg.Bucket, s.cfg.Prefix.Key(name)).Context(ctx).Download()
	if err != nil {
		return nil, dateOfError(err), s.absent(ctx, err)
	}
	defer resp.Body.Close()
	expect(max(0, resp.ContentLength))
	data, err = bucket.ReadBody(resp.Body, name, resp.ContentLength, most)
	if err != nil && !errors.Is(err, bucket.ErrTooLong) {
		err = s.answered(ctx, err)
	}
	return data, bucket.Date(resp.Header), err
}

// Exists implements bucket.Store, by one request for the object's metadata.
func (s *store) Exists(ctx context.Context, name string) (bool, error) {
	ctx, cancel := s.timeout.Limit(ctx, 0)
	defer cancel()
	_, err := s.objects.Get(s.cfg.Bucket, s.cfg.Prefix.Key(name)).Fields("generation").Context(ctx).Do()
	return bucket.There(s.absent(ctx, err))
}

// Remove implements bucket.Store, by one request.
func (s *store) Remove(ctx context.Context, name string) error {
	ctx, cancel := s.timeout.Limit(ctx, 0)
	defer cancel()
	err := s.objects.Delete(s.cfg.Bucket, s.cfg.Prefix.Key(name)).Context(ctx).Do()
	return bucket.Gone(s.absent(ctx, err))
}

// List implements bucket.Store, by one request.
func (s *store) List(ctx context.Context, prefix, start, next string) (bucket.Page, error) {
	ctx, cancel := s.timeout.Limit(ctx, 1<<20)
	defer cancel()
	call := s.objects.List(s.cfg.Bucket).Prefix(s.cfg.Prefix.Key(prefix)).MaxResults(bucket.MaxPage).
		Fields("items(name,timeCreated)", "nextPageToken").Context(ctx)
	if next != "" {
		call = call.PageToken(next)
	} else if start != "" {
		call = call.StartOffset(s.cfg.Prefix.Key(start) + "\x01") // after start itself
	}
	got, err := call.Do()
	if err != nil {
		return bucket.Page{}, s.answered(ctx, err)
	}
	page := bucket.Page{At: bucket.Date(got.Header), Next: got.NextPageToken, Objects: make([]bucket.Object, len(got.Items))}
	for i, object := range got.Items {
		created, err := time.Parse(time.RFC3339, object.TimeCreated)
		if err != nil {
			return bucket.Page{}, bucket.Explained(err, fmt.Sprintf("%s does not say when %s was created", s.cfg.store(), object.Name))
		}
		page.Objects[i] = bucket.Object{Name: s.cfg.Prefix.Name(object.Name), Modified: created}
	}
	return page, nil
}

// dateOfError is when the store answered with an error, by its own clock. Zero if it did
// not say.
func dateOfError(err error) time.Time {
	var answer *googleapi.Error
	if !errors.As(err, &answer) {
		return time.Time{}
	}
	return bucket.Date(answer.Header)
}
