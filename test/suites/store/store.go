// Package store starts this project's etcd API for suites that others wrote:
// fresh, at revision 1, on the journal that the environment names. It runs in
// the test's own process, and is gone when the test is.
package store

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/xbernetes/xbernetes/internal/etcdapi"
	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/filelog"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/journal/natslog"
	"github.com/xbernetes/xbernetes/internal/journal/natslog/natstest"
	"github.com/xbernetes/xbernetes/internal/journal/s3log"
	"github.com/xbernetes/xbernetes/internal/journal/sqllog"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/replica"
)

const (
	// variable names the journal driver to run on: memlog, filelog, s3log, sqllog or natslog.
	variable = "XB_SUITE_JOURNAL"
	// Database names the URL of the database that sqllog runs on.
	Database = "XB_SUITE_POSTGRES"
)

// Options say how to serve. The zero value is useful.
type Options struct {
	// TLS is nil for plain text.
	TLS *tls.Config
	// ProgressInterval is etcd's WatchProgressNotifyInterval; 0 for its default.
	ProgressInterval time.Duration
}

// Start serves the etcd API on a new journal until the test ends, and returns
// where.
func Start(t testing.TB, opts Options) (endpoint string) {
	t.Helper()
	return Serve(t, openJournal(t), opts)
}

// Serve serves the etcd API on a replica of journal until the test ends, and
// returns where.
func Serve(t testing.TB, journal journal.Store, opts Options) (endpoint string) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen for the etcd API: %v", err)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	polling := notify.NewPolling(100*time.Millisecond, time.Second)
	r := replica.New(replica.Config{Store: journal, Notifier: polling, Logger: log})
	scheme := "http"
	if opts.TLS != nil {
		scheme = "https"
	}
	endpoint = scheme + "://" + lis.Addr().String()
	api := etcdapi.New(etcdapi.Config{
		Replica:          r,
		Logger:           log,
		ProgressInterval: opts.ProgressInterval,
		ClientURLs:       []string{endpoint},
	})
	run(t, polling.Run)
	run(t, r.Run)
	run(t, func(ctx context.Context) error {
		if opts.TLS != nil {
			return api.ServeTLS(ctx, lis, opts.TLS)
		}
		return api.Serve(ctx, lis)
	})
	select {
	case <-r.Ready():
	case <-r.Done():
		t.Fatal("the replica ended before it was ready")
	}
	return endpoint
}

// run runs f until the test ends, and waits for it then.
func run(t testing.TB, f func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the store ended with: %v", err)
		}
	})
}

// openJournal opens a new journal of the driver that the environment names,
// until the test ends.
func openJournal(t testing.TB) journal.Store {
	t.Helper()
	var (
		store  journal.Store
		err    error
		driver = os.Getenv(variable)
	)
	switch driver {
	case "memlog":
		store = memlog.New(memlog.Options{}).Open()
	case "filelog":
		store, err = filelog.Open(context.Background(), t.TempDir(), filelog.Options{})
	case "s3log":
		store, err = s3log.Open(context.Background(), newPrefix())
	case "sqllog":
		store, err = openTable()
	case "natslog":
		store, err = openStream(t)
	default:
		t.Fatalf("%s is %q; want memlog, filelog, s3log, sqllog or natslog", variable, driver)
	}
	if err != nil {
		t.Fatalf("open a new journal: %v", err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("close the journal: %v", err)
		}
	})
	return store
}

// bucket is the one object store of a test process, in its memory.
var bucket = sync.OnceValue(func() *httptest.Server {
	backend := s3mem.New()
	if err := backend.CreateBucket("suites"); err != nil {
		panic(err) // nothing can be in the way in an empty memory
	}
	return httptest.NewServer(gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
})

// prefixes counts the journals of this process.
var prefixes atomic.Int64

// openTable opens a journal in tables that are not there yet.
func openTable() (journal.Store, error) {
	u, err := url.Parse(fmt.Sprintf("%s&table=s%d_%d", os.Getenv(Database), os.Getpid(), prefixes.Add(1)))
	if err != nil {
		return nil, err
	}
	cfg, err := sqllog.ParseURL(u)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Database, err)
	}
	return sqllog.Open(context.Background(), cfg)
}

// newPrefix is a place in the bucket that holds no journal yet.
func newPrefix() s3log.Config {
	return s3log.Config{
		Bucket:      "suites",
		Prefix:      fmt.Sprint("journal-", prefixes.Add(1)),
		Endpoint:    bucket().URL,
		PathStyle:   true,
		Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
	}
}

// openStream opens a journal on a NATS server of its own.
func openStream(t testing.TB) (journal.Store, error) {
	u, err := url.Parse(natstest.URL("suite", []string{"synced=true"}, natstest.Start(t, nil)))
	if err != nil {
		return nil, err
	}
	cfg, err := natslog.ParseURL(u)
	if err != nil {
		return nil, err
	}
	return natslog.Open(context.Background(), cfg)
}
