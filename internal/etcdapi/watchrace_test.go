package etcdapi

import (
	"context"
	"log/slog"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/xbernetes/xbernetes/internal/etcdapi/wire"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/replica"
)

// hookedStream is a watch stream without a network: what is sent goes through
// a hook first, while the server's loop waits.
type hookedStream struct {
	grpc.ServerStream
	ctx      context.Context
	requests chan *pb.WatchRequest
	hook     func(sent any)
}

func (s *hookedStream) Context() context.Context { return s.ctx }

func (s *hookedStream) Recv() (*pb.WatchRequest, error) {
	select {
	case r := <-s.requests:
		return r, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

func (s *hookedStream) Send(r *pb.WatchResponse) error { return s.SendMsg(r) }

func (s *hookedStream) SendMsg(m any) error {
	s.hook(m)
	return nil
}

// TestChangeDuringCreate changes a key at the very moment at which its watcher
// is told that it exists, and again while that first change is being sent.
func TestChangeDuringCreate(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := replica.New(replica.Config{
		Store:    memlog.New(memlog.Options{}).Open(),
		Notifier: notify.NewPolling(time.Second, time.Second),
		Logger:   slog.New(slog.DiscardHandler),
	})
	ran, watched := make(chan error, 1), make(chan error, 1)
	go func() { ran <- r.Run(ctx) }()
	<-r.Ready()
	put := func() {
		req := &mvcc.Request{Kind: mvcc.Txn, Then: []mvcc.Op{{Kind: mvcc.OpPut, Range: mvcc.KeyRange{Key: "k"}}}}
		if _, err := r.Propose(t.Context(), req); err != nil {
			t.Error(err)
		}
	}
	told := make(chan mvcc.Revision, 2)
	s := &hookedStream{ctx: ctx, requests: make(chan *pb.WatchRequest)}
	s.hook = func(sent any) {
		switch m := sent.(type) {
		case *pb.WatchResponse:
			if m.Created {
				put()
			}
		case *wire.WatchResponse:
			for _, c := range m.Changes {
				if c.KV.Mod == 2 {
					put()
				}
				told <- c.KV.Mod
			}
		}
	}
	sv := &service{Server: New(Config{Replica: r, Logger: slog.New(slog.DiscardHandler)})}
	go func() { watched <- sv.Watch(s) }()
	s.requests <- &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("k")}}}
	for want := mvcc.Revision(2); want <= 3; want++ {
		select {
		case got := <-told:
			if got != want {
				t.Errorf("watcher is told of %d, want %d", got, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("watcher is never told of %d", want)
		}
	}
	cancel()
	<-watched
	if err := <-ran; err != nil {
		t.Errorf("replica ended with %v", err)
	}
}
