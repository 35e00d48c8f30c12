package azurelog

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/azurelog/azuretest"
	"github.com/xbernetes/xbernetes/internal/journal/journaltest"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/buckettest"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/objecttest"
)

func TestMain(m *testing.M) { os.Exit(azuretest.Main(m)) }

// azurite is a Config for an empty container of a real store, with between before it; nil:
// nothing.
func azurite(t testing.TB, between func(http.Handler) http.Handler) Config {
	t.Helper()
	server := azuretest.Shared(t)
	store := server.Handler()
	if between != nil {
		store = between(store)
	}
	cfg := serve(t, store)
	cfg.Container = server.Container(t)
	return cfg
}

// serve runs handler until the test ends, and returns a Config for it.
func serve(t testing.TB, handler http.Handler) Config {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	// A minute, because a machine that is busy with other tests is no fault of the store.
	return Config{Account: azuretest.Account, Container: "journals", Prefix: "some/where", Endpoint: server.URL, Key: azuretest.Key, RequestTimeout: time.Minute}
}

// dialect is what faults need to know of Azure's REST API.
var dialect = objecttest.Dialect{
	Call: func(r *http.Request) (method, key string) {
		method, query := r.Method, r.URL.Query()
		if method == http.MethodHead {
			method = http.MethodGet
		}
		switch {
		case query.Get("comp") == "list":
			return method, query.Get("prefix")
		case query.Get("restype") == "container":
			return method, "the container"
		}
		return method, r.URL.Path
	},
	Answer: func(w http.ResponseWriter, kind objecttest.Fault) {
		switch kind {
		case objecttest.Busy:
			refuse(w, http.StatusTooManyRequests, "TooManyRequests")
		case objecttest.SlowDown:
			refuse(w, http.StatusServiceUnavailable, "ServerBusy")
		default:
			refuse(w, http.StatusInternalServerError, "OperationTimedOut")
		}
	},
}

// refuse answers with an error as Azure gives it.
func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Set("X-Ms-Error-Code", code)
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>by the test</Message></Error>", code)
}

func fixture(cfg Config) journaltest.Fixture {
	return journaltest.Fixture{Open: func(ctx context.Context) (journal.Store, error) { return Open(ctx, cfg) }}
}

func TestStore(t *testing.T) {
	t.Parallel()
	buckettest.Run(t, func(t *testing.T) bucket.Store { return opened(t, azurite(t, nil)) })
}

// TestJournal: the journal keeps its contract while requests fail now and then. Without
// faults the suite would ask for less.
func TestJournal(t *testing.T) {
	t.Parallel()
	var seed atomic.Uint64
	journaltest.Run(t, func(t *testing.T) journaltest.Fixture {
		return fixture(azurite(t, func(store http.Handler) http.Handler {
			return objecttest.NewFaults(objecttest.Hasty(store), dialect, objecttest.Sometimes(seed.Add(1), 0.15, dialect))
		}))
	})
}

func opened(t testing.TB, cfg Config) *store {
	t.Helper()
	s, err := open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFaults(t *testing.T) {
	t.Parallel()
	through := func(t *testing.T, between func(http.Handler) http.Handler, timeout time.Duration) Config {
		cfg := azurite(t, between)
		cfg.RequestTimeout = timeout
		return cfg
	}
	buckettest.RunFaults(t, buckettest.Driver{
		Dialect: dialect,
		Store: func(t *testing.T, between func(http.Handler) http.Handler, timeout time.Duration) (bucket.Store, error) {
			return open(through(t, between, timeout))
		},
		Journal: func(t *testing.T, between func(http.Handler) http.Handler, timeout time.Duration) (journal.Store, error) {
			return Open(t.Context(), through(t, between, timeout))
		},
	})
}

// blank is a store that holds nothing, and tells everybody that a blob was stored.
var blank = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Ms-Version", "2026-06-06")
	switch {
	case r.Method == http.MethodPut:
		w.Header().Set("ETag", `"1"`)
		w.WriteHeader(http.StatusCreated)
	case r.URL.Query().Get("comp") == "list":
		w.Header().Set("Content-Type", "application/xml")
		fmt.Fprint(w, "<EnumerationResults><Blobs/><NextMarker/></EnumerationResults>")
	case r.URL.Query().Get("restype") == "container":
	default:
		refuse(w, http.StatusNotFound, "BlobNotFound")
	}
})

// with is blank, with a header that all answers have.
func with(name, value string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(name, value)
		blank(w, r)
	})
}

// TestProbeRefuses: a store that tells several writers that they created a blob is refused.
func TestProbeRefuses(t *testing.T) {
	t.Parallel()
	_, err := Open(t.Context(), serve(t, blank))
	if !errors.Is(err, bucket.ErrUnfit) || !strings.Contains(err.Error(), "Put Blob with If-None-Match: *") {
		t.Errorf("Open = %v, want a refusal that names the promise", err)
	}
}

// TestOpenRefuses: what is wrong gets one sentence that names it and says what to do.
func TestOpenRefuses(t *testing.T) {
	answers := func(status int, code string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { refuse(w, status, code) })
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
		"no container":        {answers(404, "ContainerNotFound"), nil, `container "journals" does not exist at http://127.0.0.1`},
		"container goes":      {answers(409, "ContainerBeingDeleted"), nil, `container "journals" is being deleted or is disabled`},
		"bad prefix":          {blank, func(c *Config) { c.Prefix = "a/../b" }, `prefix "a/../b" is not valid`},
		"denied":              {answers(403, "AuthorizationPermissionMismatch"), nil, "access to azblob://accountoftests/journals/some/where is denied by http://127.0.0.1"},
		"wrong key":           {answers(403, "AuthenticationFailed"), nil, "does not accept the credentials (AuthenticationFailed)"},
		"wrong token":         {answers(401, "InvalidAuthenticationInfo"), nil, "does not accept the credentials"},
		"overloaded":          {answers(503, "ServerBusy"), nil, "answered 503 ServerBusy; the store is overloaded or in trouble, try again"},
		"blobs are kept":      {answers(409, "BlobImmutableDueToPolicy"), nil, "remove its immutability policies and legal holds"},
		"blobs are leased":    {answers(412, "LeaseIdMissing"), nil, "remove leases from blobs of the journal"},
		"immutability policy": {with("X-Ms-Has-Immutability-Policy", "true"), nil, `container "journals" has an immutability policy, under which`},
		"legal hold":          {with("X-Ms-Has-Legal-Hold", "true"), nil, `container "journals" has a legal hold, under which`},
		"a web page":          {page, nil, "is no Azure Blob Storage: it answers with a web page"},
		"another service":     {http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), nil, "it answers 200 without an x-ms-version"},
		"nothing to read":     {blank, func(c *Config) { c.ReadOnly = true }, "there is no journal at azblob://accountoftests/journals/some/where"},
		"in clear text":       {blank, func(c *Config) { c.Endpoint = "http://store.example" }, "would get credentials in clear text"},
		"a key in pieces":     {blank, func(c *Config) { c.Key = "hunter2!" }, "the key in the configuration is no base64"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := serve(t, test.store)
			if test.spoil != nil {
				test.spoil(&cfg)
			}
			_, err := Open(t.Context(), cfg)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("Open = %v, want it to say %q in one line", err, test.want)
			}
		})
	}
}

// TestContainerIsMissing: the store's own answer is understood.
func TestContainerIsMissing(t *testing.T) {
	t.Parallel()
	cfg := azurite(t, nil)
	cfg.Container = "nowhere"
	if _, err := Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), `container "nowhere" does not exist`) {
		t.Errorf("Open = %v, want it to say that there is no such container", err)
	}
}
