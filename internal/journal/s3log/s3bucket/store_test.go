package s3bucket

import (
	"net/http/httptest"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/buckettest"
	"github.com/xbernetes/xbernetes/internal/journal/s3log/s3test"
)

func TestStore(t *testing.T) {
	t.Parallel()
	buckettest.Run(t, func(t *testing.T) bucket.Store {
		memory, _, err := s3test.New("journals", 0)
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(memory)
		t.Cleanup(server.Close)
		s, err := Open(t.Context(), Config{
			Bucket: "journals", Prefix: "some/where", Endpoint: server.URL, PathStyle: true,
			Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}
