package replica

import (
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
	"github.com/xbernetes/xbernetes/internal/replica/agreement"
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

// TestTrimWaitsForAnotherReplica: while others write, records are given up only once another
// replica has computed the hash of the snapshot that replaces them.
func TestTrimWaitsForAnotherReplica(t *testing.T) {
	now := time.Now()
	l := besideAFastWriter(time.Millisecond, now, now)
	l.state, l.agreement, l.trim, l.group = mvcc.New(), agreement.New(1), trimmer{allowed: true}, new(errgroup.Group)
	for slot := journal.Slot(7); slot < 7+snapshot.Keep; slot++ {
		hash := [32]byte{byte(slot)}
		l.agreement.Computed(slot, hash)
		l.agreement.Marked(agreement.Mark{SnapshotMark: record.SnapshotMark{Slot: slot, Hash: hash}, Writer: 1})
		l.trim.agreed(slot, hash)
	}
	if _, ok := l.trim.oldest(); !ok {
		t.Fatal("no snapshot is old enough")
	}
	l.releaseRecords()
	if l.trim.working {
		t.Error("records are given up for a snapshot that only this replica knows")
	}
}
