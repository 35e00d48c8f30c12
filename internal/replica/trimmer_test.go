package replica

import (
	"testing"

	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// TestTrimCountsASnapshotOnce: a mark whose Append had an unknown outcome may be in the
// journal twice, and a single snapshot must not replace the records.
func TestTrimCountsASnapshotOnce(t *testing.T) {
	trim := trimmer{allowed: true}
	for i := range snapshot.Keep + 1 {
		if first := trim.agreed(7, [32]byte{1}); first != (i == 0) {
			t.Errorf("mark %d of the same snapshot counts: %v", i+1, first)
		}
	}
	if _, ok := trim.oldest(); ok || len(trim.kept) != 1 {
		t.Errorf("%d snapshots count, and records may be given up: %v; want 1, and false", len(trim.kept), ok)
	}
}

// TestTrimmer: records are given up before the oldest snapshot that is kept, once, and
// not while others are being deleted.
func TestTrimmer(t *testing.T) {
	trim := trimmer{allowed: true}
	trim.agreed(7, [32]byte{7})
	trim.agreed(8, [32]byte{8})
	oldest, ok := trim.oldest()
	if !ok || oldest.slot != 7 || oldest.hash != [32]byte{7} {
		t.Fatalf("the oldest snapshot is %+v, %v, want that of slot 7", oldest, ok)
	}
	trim.begin(oldest)
	trim.agreed(9, [32]byte{9})
	if s, ok := trim.oldest(); ok {
		t.Errorf("records before slot %d may be given up while others are being deleted", s.slot)
	}
	trim.end()
	if s, ok := trim.oldest(); !ok || s.slot != 8 {
		t.Errorf("the oldest snapshot is %+v, %v, want that of slot 8", s, ok)
	}
	trim.begin(agreedSnapshot{slot: 8})
	trim.end()
	if s, ok := trim.oldest(); ok {
		t.Errorf("records before slot %d are given up twice", s.slot)
	}
	var guest trimmer
	if guest.agreed(7, [32]byte{}) || guest.agreed(8, [32]byte{}) {
		t.Error("a replica that may not trim counts snapshots")
	}
}
