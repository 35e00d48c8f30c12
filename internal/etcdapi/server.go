// Package etcdapi serves the etcd v3 gRPC API over a replica: the part that Kubernetes,
// etcdctl and etcd's benchmark need. It keeps no state of its own, and answers
// codes.Unimplemented to the rest: auth, membership changes, downgrades, backups, nested
// transactions.
//
// Semantics, limits and errors follow etcd 3.7's server/etcdserver/api/v3rpc. These
// differences are known:
//
//   - A transaction that puts a key which it also deletes by a range without
//     an end is refused as a duplicate; etcd overlooks it.
//   - Within one revision, a watch gives events in the order of their keys.
//   - A sort by anything but the key, without an order and with a limit, sorts all
//     keys before it cuts. etcd cuts first; its RangeStream sorts each chunk by
//     itself, so that keys come twice.
//   - A request for progress while a watcher catches up is answered once the watcher
//     has caught up; etcd forgets the request. A watcher that compaction cancelled
//     does not keep its stream from progress; in etcd it does.
//   - The header of a watch's events has the revision of the last of these events,
//     also while the watcher catches up; etcd's has the newest revision then.
//   - An idle watcher is told of progress every minute; in etcd every ten minutes by
//     default, which is longer than Kubernetes' compaction interval of five.
//   - Compaction to revision 0 is refused as compacted, even before the first
//     compaction.
package etcdapi

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"log/slog"
	"math"
	"net"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"github.com/xbernetes/xbernetes/internal/etcdapi/wire"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/replica"
)

// Version is the etcd version whose behaviour is served, and that Status reports. Kubernetes
// asks for progress only if it is 3.5.13 or later.
const Version = "3.7.3"

// The limits of etcd's default configuration.
const (
	maxRequestBytes = 3 << 19 // 1.5 MiB
	// As in etcd, somewhat longer messages are read, so that they can be refused with
	// the proper error.
	maxRecvBytes = maxRequestBytes + 512<<10
)

// Config is what a server needs. Replica and Logger are required.
type Config struct {
	Replica *replica.Replica
	Logger  *slog.Logger

	// SessionReads answers reads from the local state, which is never older than what
	// this server has acknowledged or shown, but perhaps older than other servers'
	// states. If it is not set, reads are linearizable unless they ask to be
	// serializable.
	SessionReads bool
	// ProgressInterval is how often an idle watcher that asked for it is told of
	// progress; 0 for a minute. Progress comes from the local state, without a question
	// to the journal. After events, a watcher waits up to twice as long. Every 5
	// minutes Kubernetes compacts history that is 5 minutes old: the last revision that
	// it was told must be younger, or it cannot check its caches.
	ProgressInterval time.Duration
	// ClientURLs are the addresses of this server that MemberList returns.
	ClientURLs []string
	// Size, if set, returns the size of the stored state, in bytes.
	Size func() int64
}

const defaultProgressInterval = time.Minute

// Server answers the etcd API. Its methods are safe for concurrent use.
type Server struct {
	cfg       Config
	replica   *replica.Replica
	log       *slog.Logger
	clusterID uint64
	memberID  uint64
	watches   watchCounts
}

// New returns a server over cfg.Replica; Serve gives it clients.
func New(cfg Config) *Server {
	if cfg.ProgressInterval == 0 {
		cfg.ProgressInterval = defaultProgressInterval
	}
	id := cfg.Replica.Journal().ID
	return &Server{
		cfg:       cfg,
		replica:   cfg.Replica,
		log:       cfg.Logger,
		clusterID: binary.BigEndian.Uint64(id[:8]) | 1, // 0 means "not known" to clients
		memberID:  uint64(cfg.Replica.Writer()),
	}
}

// stopGrace is how long calls in flight have once a server is asked to stop.
const stopGrace = 5 * time.Second

// Serve answers the clients of lis until ctx ends. Then it lets calls in flight finish, and
// returns nil. It answers no call before the replica has reached the tail of its journal.
// When the replica ends, Serve returns replica.ErrStopped. It may run for several listeners
// at once, and closes lis when it returns.
func (s *Server) Serve(ctx context.Context, lis net.Listener) error {
	return s.serve(ctx, lis, nil)
}

// ServeTLS is Serve with TLS. To know clients by their certificates, set ClientCAs and
// ClientAuth in cfg.
func (s *Server) ServeTLS(ctx context.Context, lis net.Listener, cfg *tls.Config) error {
	return s.serve(ctx, lis, credentials.NewTLS(cfg))
}

func (s *Server) serve(ctx context.Context, lis net.Listener, creds credentials.TransportCredentials) error {
	select {
	case <-s.replica.Ready():
	case <-s.replica.Done():
		lis.Close()
		return replica.ErrStopped
	case <-ctx.Done():
		lis.Close()
		return nil
	}
	g := grpc.NewServer(serverOptions(creds)...)
	s.register(g, ctx.Done())
	healthy := health.NewServer()
	healthpb.RegisterHealthServer(g, healthy)

	served := make(chan error, 1)
	go func() { served <- g.Serve(lis) }()
	select {
	case err := <-served:
		return err
	case <-s.replica.Done():
		g.Stop()
		<-served //nolint:errcheck // it was stopped
		return replica.ErrStopped
	case <-ctx.Done():
	}
	healthy.Shutdown()
	force := time.AfterFunc(stopGrace, g.Stop)
	defer force.Stop()
	g.GracefulStop()
	<-served //nolint:errcheck // it was stopped
	return nil
}

// register gives clients the services of etcd that are served. Streams end when stop
// is closed.
func (s *Server) register(to grpc.ServiceRegistrar, stop <-chan struct{}) {
	sv := &service{Server: s, stop: stop}
	to.RegisterService(&kvService, sv)
	pb.RegisterWatchServer(to, sv)
	pb.RegisterLeaseServer(to, sv)
	pb.RegisterMaintenanceServer(to, sv)
	pb.RegisterClusterServer(to, sv)
}

// streamWorkers is how many goroutines wait for calls, with stacks that have grown to the
// size that a call needs. Further calls each get a new goroutine.
const streamWorkers = 512

// serverOptions returns etcd's limits, and options that make many small calls cheap: the flow
// control windows are fixed, which saves grpc's pings to measure them, and idle connections
// hold no write buffer.
func serverOptions(creds credentials.TransportCredentials) []grpc.ServerOption {
	opts := []grpc.ServerOption{
		grpc.ForceServerCodecV2(wire.NewCodec()),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.MaxRecvMsgSize(maxRecvBytes),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxConcurrentStreams(math.MaxUint32),
		grpc.InitialWindowSize(1 << 20),
		grpc.InitialConnWindowSize(4 << 20),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 2 * time.Hour, Timeout: 20 * time.Second}),
	}
	if creds != nil {
		opts = append(opts, grpc.Creds(creds))
	}
	return opts
}

// service is the Server as register registers it, with the channel that stops its streams.
type service struct {
	*Server
	stop <-chan struct{}

	pb.UnimplementedWatchServer
	pb.UnimplementedLeaseServer
	pb.UnimplementedMaintenanceServer
	pb.UnimplementedClusterServer
}

// head returns the header of a response that package wire writes.
func (s *Server) head(rev mvcc.Revision) wire.Header {
	return wire.Header{Cluster: s.clusterID, Member: s.memberID, Revision: rev}
}

// header returns the header of all other responses.
func (s *Server) header(rev mvcc.Revision) *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: s.clusterID, MemberId: s.memberID, Revision: int64(rev), RaftTerm: 1}
}
