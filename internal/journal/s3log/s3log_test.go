package s3log

import (
	"context"
	"net/http/httptest"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/journaltest"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/objecttest"
	"github.com/xbernetes/xbernetes/internal/journal/s3log/s3test"
)

// TestJournal: package objectlog has the tests of journals in S3 under faults, and of
// their time. This one opens them as programs do.
func TestJournal(t *testing.T) {
	t.Parallel()
	journaltest.Run(t, func(t *testing.T) journaltest.Fixture {
		store, _, err := s3test.New("journals", 0)
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(objecttest.Hasty(store))
		t.Cleanup(server.Close)
		cfg := Config{
			Bucket: "journals", Prefix: "some/where", Endpoint: server.URL, PathStyle: true,
			Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
		}
		return journaltest.Fixture{Open: func(ctx context.Context) (journal.Store, error) { return Open(ctx, cfg) }}
	})
}
