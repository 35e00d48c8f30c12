package replica

import (
	"errors"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// TestQueueIsBoundedInBytes: what waits for the journal takes a bounded amount of
// memory, however large each request is, and has room again once it is gone.
func TestQueueIsBoundedInBytes(t *testing.T) {
	var q queue
	q.init()
	large := &mvcc.Request{Kind: mvcc.Txn, Then: []mvcc.Op{{Kind: mvcc.OpPut, Range: mvcc.KeyRange{Key: "k"}, Value: make([]byte, 3<<19)}}}
	fill := func() (n int) {
		for ; n <= maxQueued; n++ {
			if _, err := q.add(mvcc.MaxBatchWeight, time.Now().Add(time.Hour), large); err != nil {
				if !errors.Is(err, ErrBusy) {
					t.Fatal(err)
				}
				return n
			}
		}
		t.Fatal("there is no end of it")
		return n
	}
	n := fill()
	if held := n * large.Weight(); held > maxQueuedBytes || held < maxQueuedBytes-large.Weight() {
		t.Errorf("%d bytes wait, at most %d", held, maxQueuedBytes)
	}
	if got := len(q.take(mvcc.MaxBatchWeight)); got == 0 || fill() != got {
		t.Errorf("%d were taken, and there is not room for as many", got)
	}
	for range 3 {
		p, err := q.add(mvcc.MaxBatchWeight, time.Now().Add(time.Hour), &mvcc.Request{Kind: mvcc.Compact})
		if err == nil { // what is small fits a little longer; it, too, gives its room back
			_, _ = p.giveUp(errors.New("gone"))
		}
	}
	q.timeOut(time.Now().Add(2*time.Hour), false)
	if q.bytes != 0 || len(q.items) != 0 || fill() != n {
		t.Errorf("%d bytes of %d requests are left", q.bytes, len(q.items))
	}
}

// TestAbandon: a caller that stops waiting is told that its request was not made if nobody
// has taken it, and never if somebody has.
func TestAbandon(t *testing.T) {
	var q queue
	q.init()
	add := func() *proposal {
		p, err := q.add(mvcc.MaxBatchWeight, time.Now().Add(time.Hour), &mvcc.Request{Kind: mvcc.Compact})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	gone := errors.New("gone")
	waits := add()
	if _, err := waits.giveUp(gone); !errors.Is(err, ErrUnavailable) || !errors.Is(err, gone) {
		t.Errorf("a request that waits is abandoned with %v, want ErrUnavailable and the cause", err)
	}
	taken := add()
	if got := q.take(mvcc.MaxBatchWeight); len(got) != 1 || got[0] != taken {
		t.Fatalf("%d requests were taken, want the second only", len(got))
	}
	if _, err := taken.giveUp(gone); !errors.Is(err, ErrUnknown) || errors.Is(err, ErrUnavailable) {
		t.Errorf("a request that was taken is abandoned with %v, want ErrUnknown", err)
	}
}
