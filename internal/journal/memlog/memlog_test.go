package memlog_test

import (
	"context"
	"testing"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/journaltest"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
)

func fixture(opts memlog.Options) func(*testing.T) journaltest.Fixture {
	return func(*testing.T) journaltest.Fixture {
		store := memlog.New(opts)
		return journaltest.Fixture{Open: func(context.Context) (journal.Store, error) { return store.Open(), nil }}
	}
}

func TestStore(t *testing.T) { journaltest.Run(t, fixture(memlog.Options{MaxRecord: 1 << 20})) }
func TestDepth1(t *testing.T) {
	journaltest.Run(t, fixture(memlog.Options{MaxRecord: 1 << 20, Depth: 1}))
}
