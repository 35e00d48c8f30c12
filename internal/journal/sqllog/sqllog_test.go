package sqllog

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"sync/atomic"
	"testing"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/journaltest"
	"github.com/xbernetes/xbernetes/internal/journal/sqllog/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func config(t testing.TB, rawURL string) Config {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := ParseURL(u)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

var tablesMade atomic.Int64

// fresh is a journal that is not there yet, in the shared server.
func fresh(t testing.TB) Config {
	return config(t, pgtest.Shared(t).URL("postgres", fmt.Sprint("table=t", tablesMade.Add(1))))
}

func fixture(cfg Config) journaltest.Fixture {
	return journaltest.Fixture{Open: func(ctx context.Context) (journal.Store, error) { return Open(ctx, cfg) }}
}

func TestPostgreSQL(t *testing.T) {
	journaltest.Run(t, func(t *testing.T) journaltest.Fixture { return fixture(fresh(t)) })
}
