package azurelog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
)

// store is the part of a container below one prefix. It implements bucket.Store.
type store struct {
	cfg       Config // valid
	timeout   bucket.Timeout
	container *container.Client // repeats no request
	conns     *http.Transport
}

var _ bucket.Store = (*store)(nil)

// open makes a client for the store. It sends nothing to it. The error is one
// sentence that names what is wrong and what to do.
func open(cfg Config) (*store, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	conns := bucket.Connections()
	client, err := cfg.client(conns)
	if err != nil {
		return nil, err
	}
	return &store{cfg, bucket.Timeout(cfg.RequestTimeout), client, conns}, nil
}

// Names implements bucket.Store.
func (s *store) Names() bucket.Names {
	return bucket.Names{Location: s.cfg.location(), Store: s.cfg.store(), Create: "Put Blob with If-None-Match: *", Delete: "blobs/delete"}
}

// Close implements bucket.Store.
func (s *store) Close() { s.conns.CloseIdleConnections() }

// blob is the object of that name.
func (s *store) blob(name string) *blockblob.Client {
	return s.container.NewBlockBlobClient(s.cfg.Prefix.Key(name))
}

// Create implements bucket.Store, by one Put Blob on the condition that there is no blob.
func (s *store) Create(ctx context.Context, name string, body []byte) (at time.Time, err error) {
	none := &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)}}
	return s.upload(ctx, name, body, none)
}

// Put implements bucket.Store, by one Put Blob.
func (s *store) Put(ctx context.Context, name string, body []byte) error {
	_, err := s.upload(ctx, name, body, nil)
	return err
}

// upload sends body as the blob of that name, by one request. The store checks it against
// its CRC-64.
func (s *store) upload(ctx context.Context, name string, body []byte, condition *blob.AccessConditions) (at time.Time, err error) {
	ctx, cancel := s.timeout.Limit(ctx, len(body))
	defer cancel()
	got, err := s.blob(name).Upload(ctx, streaming.NopCloser(bytes.NewReader(body)), &blockblob.UploadOptions{
		AccessConditions:        condition,
		TransactionalValidation: blob.TransferValidationTypeComputeCRC64(),
	})
	if err == nil && (got.ETag == nil || *got.ETag == "") {
		err = errors.New("it confirms a blob and gives no ETag")
	}
	if err != nil {
		return at, s.answered(ctx, err)
	}
	return dateOf(got.Date), nil
}

// Get implements bucket.Store, by one Get Blob.
func (s *store) Get(ctx context.Context, name string, most int64) (data []byte, at time.Time, err error) {
	ctx, expect, done := s.timeout.LimitBody(ctx)
	defer done()
	got, err := s.blob(name).DownloadStream(ctx, nil)
	if err != nil {
		return nil, dateOfError(err), s.absent(ctx, err)
	}
	defer got.Body.Close()
	length := int64(-1)
	if got.ContentLength != nil {
		length = *got.ContentLength
	}
	expect(max(0, length))
	data, err = bucket.ReadBody(got.Body, name, length, most)
	if err != nil && !errors.Is(err, bucket.ErrTooLong) {
		err = s.answered(ctx, err)
	}
	return data, dateOf(got.Date), err
}

// Exists implements bucket.Store, by one request for the blob's properties.
func (s *store) Exists(ctx context.Context, name string) (bool, error) {
	ctx, cancel := s.timeout.Limit(ctx, 0)
	defer cancel()
	_, err := s.blob(name).GetProperties(ctx, nil)
	return bucket.There(s.absent(ctx, err))
}

// Remove implements bucket.Store, by one Delete Blob.
func (s *store) Remove(ctx context.Context, name string) error {
	ctx, cancel := s.timeout.Limit(ctx, 0)
	defer cancel()
	_, err := s.blob(name).Delete(ctx, nil)
	return bucket.Gone(s.absent(ctx, err))
}

// List implements bucket.Store, by one List Blobs. It lists from the first name on.
func (s *store) List(ctx context.Context, prefix, _, next string) (bucket.Page, error) {
	ctx, cancel := s.timeout.Limit(ctx, 1<<20)
	defer cancel()
	options := &container.ListBlobsFlatOptions{Prefix: to.Ptr(s.cfg.Prefix.Key(prefix)), MaxResults: to.Ptr(int32(bucket.MaxPage))}
	if next != "" {
		options.Marker = &next
	}
	got, err := s.container.NewListBlobsFlatPager(options).NextPage(ctx)
	if err != nil {
		return bucket.Page{}, s.answered(ctx, err)
	}
	page := bucket.Page{At: dateOf(got.Date)}
	if got.NextMarker != nil {
		page.Next = *got.NextMarker
	}
	if got.Segment == nil {
		return page, nil
	}
	for _, item := range got.Segment.BlobItems {
		if item.Name == nil || item.Properties == nil || item.Properties.LastModified == nil {
			return bucket.Page{}, bucket.Explained(bucket.ErrUnfit, fmt.Sprintf("%s lists a blob without its name, or without saying when it was written", s.cfg.store()))
		}
		page.Objects = append(page.Objects, bucket.Object{Name: s.cfg.Prefix.Name(*item.Name), Modified: *item.Properties.LastModified})
	}
	return page, nil
}

// dateOf is the Date of an answer: the store's own time. Zero if there was none.
func dateOf(at *time.Time) time.Time {
	if at == nil {
		return time.Time{}
	}
	return *at
}
