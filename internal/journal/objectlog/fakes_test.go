package objectlog

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/journaltest"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
	"github.com/xbernetes/xbernetes/internal/journal/s3log/s3bucket"
)

// The tests of this package run on S3 stores. Other stores are held to package
// buckettest.
type Config = s3bucket.Config

func openS3(ctx context.Context, cfg Config) (*Log, error) {
	store, err := s3bucket.Open(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open journal %s: %w", cfg.Location(), err)
	}
	return Open(ctx, store, Options{RequestTimeout: bucket.Timeout(cfg.RequestTimeout), ReadOnly: cfg.ReadOnly})
}

const testBucket = "journals"

// memoryStore is an S3 store in memory, without credentials or policies.
func memoryStore(t testing.TB) http.Handler {
	backend := s3mem.New()
	if err := backend.CreateBucket(testBucket); err != nil {
		t.Fatal(err)
	}
	return gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
}

// serve runs handler until the test ends, and returns a Config for it.
func serve(t testing.TB, handler http.Handler) Config {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return Config{
		Bucket:      testBucket,
		Prefix:      "some/where",
		Endpoint:    server.URL,
		PathStyle:   true,
		Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
	}
}

// atOnce is for stores whose clock nobody can move on: slots are deleted as soon
// as they are given up, and no answer counts without another look at the floors.
var atOnce = spans{trust: -1, readable: -time.Minute, kept: -time.Minute}

// fixture opens stores at cfg for the shared suite.
func fixture(cfg Config) journaltest.Fixture {
	return journaltest.Fixture{Open: func(ctx context.Context) (journal.Store, error) {
		l, err := openS3(ctx, cfg)
		if err == nil {
			l.floors.spans = atOnce
		}
		return l, err
	}}
}

func mustOpen(t testing.TB, cfg Config) *Log {
	t.Helper()
	l, err := openS3(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}
