package natslog

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"sync/atomic"
	"testing"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/journaltest"
	"github.com/xbernetes/xbernetes/internal/journal/natslog/natstest"
)

func TestMain(m *testing.M) {
	natstest.Main()
	os.Exit(m.Run())
}

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

var journalsMade atomic.Int64

// fresh is a journal that is not there yet.
func fresh(t testing.TB, servers ...*natstest.Server) Config {
	parameters := []string{"synced=true", fmt.Sprint("replicas=", len(servers))}
	return config(t, natstest.URL(fmt.Sprint("j", journalsMade.Add(1)), parameters, servers...))
}

func open(t testing.TB, cfg Config) *Log {
	t.Helper()
	l, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func fixture(cfg Config) journaltest.Fixture {
	return journaltest.Fixture{Open: func(ctx context.Context) (journal.Store, error) { return Open(ctx, cfg) }}
}

func TestOneServer(t *testing.T) {
	server := natstest.Start(t, nil)
	journaltest.Run(t, func(t *testing.T) journaltest.Fixture { return fixture(fresh(t, server)) })
}

func TestThreeServers(t *testing.T) {
	servers := natstest.Cluster(t)
	journaltest.Run(t, func(t *testing.T) journaltest.Fixture { return fixture(fresh(t, servers...)) })
}
