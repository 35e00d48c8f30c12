package s3log

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/journaltest"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
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

// TestBucketsThatAreRefused: a bucket whose settings would destroy a journal, or keep it from
// being written, is refused before anything is written. Package s3bucket has a test for each
// setting. Versioning, which only costs, is told and taken.
func TestBucketsThatAreRefused(t *testing.T) {
	for _, test := range []struct {
		setting, is   string // the query that asks for it, and the answer
		refused, said string // parts of the error, and of the log
	}{
		{"lifecycle", "<LifecycleConfiguration><Rule><ID>tidy</ID><Status>Enabled</Status><Filter><Prefix></Prefix></Filter><Expiration><Days>30</Days></Expiration></Rule></LifecycleConfiguration>",
			`open journal s3://journals/some/where: lifecycle rule "tidy" of bucket "journals" deletes records after a time, so that acknowledged writes are lost; remove it`, ""},
		{"object-lock", "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention><Mode>COMPLIANCE</Mode><Days>1</Days></DefaultRetention></Rule></ObjectLockConfiguration>",
			`bucket "journals" has Object Lock with a default retention, under which records can be neither written nor trimmed; remove the default retention`, ""},
		{"versioning", "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>", "", "switch versioning off, or add such a rule"},
	} {
		t.Run(test.setting, func(t *testing.T) {
			store, _, err := s3test.New("journals", 0)
			if err != nil {
				t.Fatal(err)
			}
			var written atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method != http.MethodGet:
					written.Add(1)
				case r.URL.Query().Has(test.setting):
					fmt.Fprint(w, test.is)
					return
				}
				store.ServeHTTP(w, r)
			}))
			t.Cleanup(server.Close)
			var log bytes.Buffer
			l, err := Open(t.Context(), Config{
				Bucket: "journals", Prefix: "some/where", Endpoint: server.URL, PathStyle: true,
				Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
				Logger:      slog.New(slog.NewTextHandler(&log, nil)),
			})
			if err == nil {
				_ = l.Close()
			}
			if test.refused == "" {
				if err != nil || !strings.Contains(log.String(), test.said) {
					t.Errorf("Open = %v, and the log has %q; want %q in it", err, log.String(), test.said)
				}
				return
			}
			if !errors.Is(err, bucket.ErrUnfit) || !strings.Contains(err.Error(), test.refused) || strings.Contains(err.Error(), "\n") {
				t.Errorf("Open = %v, want %q in it", err, test.refused)
			}
			if n := written.Load(); n > 0 {
				t.Errorf("%d requests wrote to the bucket", n)
			}
		})
	}
}
