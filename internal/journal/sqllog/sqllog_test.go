package sqllog

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

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

// TestRacingCreation: of several servers that create a journal at once, all get the same
// one, however PostgreSQL refuses the tables to those that are late.
func TestRacingCreation(t *testing.T) {
	for range 20 {
		cfg := fresh(t)
		var ids [4]journal.ID
		var openers errgroup.Group
		for n := range ids {
			openers.Go(func() error {
				l, err := Open(t.Context(), cfg)
				if err != nil {
					return err
				}
				ids[n] = l.Info().ID
				return l.Close()
			})
		}
		if err := openers.Wait(); err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if id != ids[0] {
				t.Fatalf("the servers have different journals: %v", ids)
			}
		}
	}
}

// TestLateCreator: a server that found no journal, and creates one after another server
// has done so and has written, gets that one.
func TestLateCreator(t *testing.T) {
	cfg := fresh(t)
	l, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Append(t.Context(), 1, []byte("record")); err != nil {
		t.Fatal(err)
	}
	if err := l.create(t.Context()); err != nil {
		t.Errorf("create, of a journal that is there and has records: %v", err)
	}
	if id, err := l.readMeta(t.Context()); err != nil || id != l.Info().ID {
		t.Errorf("the journal is %v then (%v), want %v", id, err, l.Info().ID)
	}
}
