package etcdapi_test

import (
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// history is what one watcher was told.
type history struct {
	key, end string
	from     int64 // 0: from now on; then set once it is created
	until    atomic.Int64
	seen     int64 // the last revision told of, by an event
	events   []string
}

func (h *history) holds(key string) bool {
	if h.end == "" {
		return key == h.key
	}
	return key >= h.key && key < h.end
}

// follow reads a stream into the histories of its watchers, by ID, until they
// are known to be complete. It fails the test if an event comes out of order,
// twice, or after progress that covers it, or a revision is split.
func follow(t *testing.T, s stream, watched map[int64]*history, keys int) {
	created, progress := 0, int64(0)
	for {
		r, err := s.Recv()
		if err != nil {
			t.Error(err)
			return
		}
		if r.WatchId == -1 {
			if r.Header.Revision < progress {
				t.Errorf("progress goes from %d to %d", progress, r.Header.Revision)
				return
			}
			progress = r.Header.Revision
		}
		if h := watched[r.WatchId]; h != nil && !h.take(t, r, progress) {
			return
		}
		if r.Created {
			created++
		}
		if r.Created || r.WatchId == -1 {
			if until := watched[1].until.Load(); until != 0 && progress >= until && created == len(watched) {
				return
			}
			if err := s.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}); err != nil {
				t.Error(err)
				return
			}
		}
	}
}

// take notes one response to its watcher.
func (h *history) take(t *testing.T, r *pb.WatchResponse, progress int64) bool {
	if r.Created && h.from == 0 {
		h.from = r.Header.Revision + 1
	}
	for i, e := range r.Events {
		rev := e.Kv.ModRevision
		switch {
		case rev <= h.seen && i == 0, rev < h.seen:
			t.Errorf("watcher %d is told of %d after %d", r.WatchId, rev, h.seen)
			return false
		case rev <= progress:
			t.Errorf("watcher %d is told of %d after progress at %d", r.WatchId, rev, progress)
			return false
		case rev < h.from:
			t.Errorf("watcher %d is told of %d, it began at %d", r.WatchId, rev, h.from)
			return false
		}
		h.seen = rev
		h.events = append(h.events, sayEvent(e))
	}
	return true
}
