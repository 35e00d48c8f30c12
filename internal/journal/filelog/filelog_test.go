package filelog

import (
	"context"
	"testing"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/journaltest"
)

// bg is for calls that nothing cancels.
var bg = context.Background()

func fixture(segmentSize int64) func(*testing.T) journaltest.Fixture {
	return func(t *testing.T) journaltest.Fixture {
		dir := t.TempDir()
		return journaltest.Fixture{Open: func(ctx context.Context) (journal.Store, error) {
			return Open(ctx, dir, Options{SegmentSize: segmentSize})
		}}
	}
}

func TestStore(t *testing.T)         { journaltest.Run(t, fixture(0)) }
func TestSmallSegments(t *testing.T) { journaltest.Run(t, fixture(4<<10)) }
