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

// TestReadOfMany reads more records than the driver looks at together.
func TestReadOfMany(t *testing.T) {
	l := open(t, fresh(t, natstest.Start(t, nil)))
	const records = 2*readAtOnce + 1
	for slot := journal.Slot(1); slot <= records; slot++ {
		if err := l.Append(t.Context(), slot, []byte(fmt.Sprint(slot))); err != nil {
			t.Fatal(err)
		}
	}
	recs, err := l.Read(t.Context(), 1, 2*records)
	if err != nil || len(recs) != records {
		t.Fatalf("Read = %d records, %v; want %d", len(recs), err, records)
	}
	for i, rec := range recs {
		if string(rec) != fmt.Sprint(i+1) {
			t.Errorf("slot %d holds %q", i+1, rec)
		}
	}
}
