package gcslog

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/gcslog/gcstest"
	"github.com/xbernetes/xbernetes/internal/journal/journaltest"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/buckettest"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/objecttest"
)

const testBucket = "journals"

// fake is a store in memory.
func fake(t testing.TB) http.Handler { return gcstest.Store(t, testBucket) }

// serve runs handler until the test ends, and returns a Config for it.
func serve(t testing.TB, handler http.Handler) Config {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	// A minute, because a machine that is busy with other tests is no fault of the store.
	return Config{Bucket: testBucket, Prefix: "some/where", Endpoint: server.URL, Anonymous: true, RequestTimeout: time.Minute}
}

// dialect is what faults need to know of Google's JSON API.
var dialect = objecttest.Dialect{
	Call: func(r *http.Request) (method, key string) {
		switch {
		case r.Method == http.MethodPost:
			return http.MethodPut, "/" + r.URL.Query().Get("name")
		case r.URL.Query().Has("prefix"):
			return r.Method, r.URL.Query().Get("prefix")
		}
		_, key, _ = strings.Cut(r.URL.Path, "/o/")
		return r.Method, "/" + key
	},
	Answer: func(w http.ResponseWriter, kind objecttest.Fault) {
		switch kind {
		case objecttest.Busy:
			refuse(w, http.StatusTooManyRequests, "rateLimitExceeded")
		case objecttest.SlowDown:
			refuse(w, http.StatusServiceUnavailable, "backendError")
		default:
			refuse(w, http.StatusInternalServerError, "internalError")
		}
	},
}

// refuse answers with an error as Google's JSON API gives it.
func refuse(w http.ResponseWriter, status int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":{"code":%d,"message":"by the test","errors":[{"reason":%q}]}}`, status, reason)
}

func fixture(cfg Config) journaltest.Fixture {
	return journaltest.Fixture{Open: func(ctx context.Context) (journal.Store, error) { return Open(ctx, cfg) }}
}

func TestStore(t *testing.T) {
	t.Parallel()
	buckettest.Run(t, func(t *testing.T) bucket.Store { return opened(t, serve(t, fake(t))) })
}

func TestJournal(t *testing.T) {
	t.Parallel()
	journaltest.Run(t, func(t *testing.T) journaltest.Fixture { return fixture(serve(t, objecttest.Hasty(fake(t)))) })
}

func TestJournalWithFaults(t *testing.T) {
	t.Parallel()
	var seed atomic.Uint64
	journaltest.Run(t, func(t *testing.T) journaltest.Fixture {
		plan := objecttest.Sometimes(seed.Add(1), 0.15, dialect)
		return fixture(serve(t, objecttest.NewFaults(objecttest.Hasty(fake(t)), dialect, plan)))
	})
}

func opened(t testing.TB, cfg Config) *store {
	t.Helper()
	s, err := open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFaults(t *testing.T) {
	t.Parallel()
	through := func(t *testing.T, between func(http.Handler) http.Handler, timeout time.Duration) Config {
		cfg := serve(t, between(fake(t)))
		cfg.RequestTimeout = timeout
		return cfg
	}
	buckettest.RunFaults(t, buckettest.Driver{
		Dialect: dialect,
		Store: func(t *testing.T, between func(http.Handler) http.Handler, timeout time.Duration) (bucket.Store, error) {
			return open(t.Context(), through(t, between, timeout))
		},
		Journal: func(t *testing.T, between func(http.Handler) http.Handler, timeout time.Duration) (journal.Store, error) {
			return Open(t.Context(), through(t, between, timeout))
		},
	})
}

// TestOpenRefuses: what is wrong gets one sentence that names it and says what to do.
func TestOpenRefuses(t *testing.T) {
	answers := func(status int, reason string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { refuse(w, status, reason) })
	}
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<!DOCTYPE html><title>Sign in</title>")
	})
	for name, test := range map[string]struct {
		store http.Handler
		spoil func(*Config)
		want  string
	}{
		"no bucket":       {fake(t), func(c *Config) { c.Bucket = "missing" }, `bucket "missing" does not exist at http://127.0.0.1`},
		"bad prefix":      {fake(t), func(c *Config) { c.Prefix = "a/../b" }, `prefix "a/../b" is not valid`},
		"denied":          {answers(403, "forbidden"), nil, "access to gs://journals/some/where is denied by http://127.0.0.1"},
		"retention":       {answers(403, "retentionPolicyNotMet"), nil, "remove the bucket's retention policy"},
		"wrong token":     {answers(401, "authError"), nil, "does not accept the credentials"},
		"overloaded":      {answers(503, "backendError"), nil, "answered 503 backendError; the store is overloaded or in trouble, try again"},
		"too often":       {answers(403, "rateLimitExceeded"), nil, "asked too often"},
		"a web page":      {page, nil, "is no Google Cloud Storage: it answers with a web page"},
		"nothing to read": {fake(t), func(c *Config) { c.ReadOnly = true }, "there is no journal at gs://journals/some/where"},
		"in clear text":   {fake(t), func(c *Config) { c.Endpoint, c.Anonymous = "http://store.example", false }, "would get credentials in clear text"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := serve(t, test.store)
			if test.spoil != nil {
				test.spoil(&cfg)
			}
			_, err := Open(t.Context(), cfg)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("Open = %v, want it to say %q in one line", err, test.want)
			}
		})
	}
}

// TestProbeRefuses: a store that ignores the condition is refused.
func TestProbeRefuses(t *testing.T) {
	store := fake(t)
	_, err := Open(t.Context(), serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		query.Del("ifGenerationMatch")
		r.URL.RawQuery = query.Encode()
		store.ServeHTTP(w, r)
	})))
	if !errors.Is(err, bucket.ErrUnfit) || !strings.Contains(err.Error(), "ifGenerationMatch=0") {
		t.Errorf("Open = %v, want a refusal that names the promise", err)
	}
}

// TestNoCredentials: without any, there is a sentence.
func TestNoCredentials(t *testing.T) {
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/key.json")
	_, err := Open(t.Context(), Config{Bucket: testBucket})
	if err == nil || !strings.Contains(err.Error(), "no credentials for Google Cloud Storage") || strings.Contains(err.Error(), "\n") {
		t.Errorf("Open = %v", err)
	}
}

func TestParseURL(t *testing.T) {
	for raw, want := range map[string]Config{
		"gs://bucket":         {Bucket: "bucket"},
		"gs://my_bucket/a/b/": {Bucket: "my_bucket", Prefix: "a/b"},
		"gs://bucket/p?endpoint=http://127.0.0.1:4443&anonymous=true": {Bucket: "bucket", Prefix: "p", Endpoint: "http://127.0.0.1:4443", Anonymous: true},
	} {
		got, err := ParseURL(buckettest.URL(t, raw))
		if err != nil || got != want {
			t.Errorf("ParseURL(%s) = %+v, %v; want %+v", raw, got, err, want)
		}
	}
	buckettest.URLsAreRefused(t, ParseURL, map[string]string{
		"s3://bucket/p":                         `has the scheme "s3"`,
		"gs:///p":                               `bucket name "" is not valid`,
		"gs://googles/p":                        "is not valid",
		"gs://me:hunter2@bucket/p":              "carries credentials",
		"gs://bucket/p?access_token=hunter2":    "looks like a secret",
		"gs://bucket/p?project=x":               `unknown parameter "project"`,
		"gs://bucket/p?anonymous=perhaps":       `anonymous="perhaps"`,
		"gs://bucket/p?endpoint=":               "must give endpoint once",
		"gs://bucket/p?endpoint=http://a.b":     "credentials in clear text",
		"gs://bucket/p?endpoint=https://a/path": "has more than a host",
		"gs://bucket/p#x":                       "malformed",
		"gs://bucket/a//b":                      `prefix "a//b" is not valid`,
	})
}

// FuzzParseURL: the location of what is accepted names the same bucket and prefix, and the
// endpoint has a host and no credentials.
func FuzzParseURL(f *testing.F) {
	buckettest.FuzzURL(f, ParseURL, func(t *testing.T, raw string, cfg Config) {
		if cfg.Endpoint != "" {
			if e, err := url.Parse(cfg.Endpoint); err != nil || e.User != nil || e.Hostname() == "" {
				t.Errorf("%q has the endpoint %q, %v", raw, cfg.Endpoint, err)
			}
		}
		again, err := ParseURL(buckettest.URL(t, cfg.location()))
		if err != nil || again.Bucket != cfg.Bucket || again.Prefix != cfg.Prefix {
			t.Errorf("%q has the location %q, which is read as %+v, %v", raw, cfg.location(), again, err)
		}
	},
		"gs://bucket/a/b?endpoint=http://127.0.0.1:4443&anonymous=true",
		"gs://me:secret@bucket/p?access_token=x",
		"gs://bucket/%2e%2e/?endpoint=%20",
	)
}
