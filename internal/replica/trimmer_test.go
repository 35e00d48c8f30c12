package replica

import (
	"testing"

	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// TestTrimCountsASnapshotOnce: a mark whose outcome was unknown may stand in
// the journal twice, and one snapshot alone must not stand for the records.
func TestTrimCountsASnapshotOnce(t *testing.T) {
	l := &loop{Replica: &Replica{cfg: Config{Trim: true}}}
	for range snapshot.Keep + 1 {
		l.trim.agreed(l, 7, [32]byte{1})
	}
	if len(l.trim.checked) != 1 || l.trim.working {
		t.Errorf("%d snapshots count, working %v; want 1, not working", len(l.trim.checked), l.trim.working)
	}
}
