package etcdapi

import (
	"context"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/xbernetes/xbernetes/internal/etcdapi/direct"
	"github.com/xbernetes/xbernetes/internal/etcdapi/wire"
)

// InProcess returns options with which clients in this process call the server directly. No
// connection is made, whatever endpoint a client names, and Serve need not run. Calls wait
// until the replica has reached the tail of its journal. When the replica ends, they end
// with etcd's ErrStopped.
func (s *Server) InProcess() []grpc.DialOption {
	services := direct.New(direct.Config{Codec: wire.NewCodec(), Ready: s.ready, MaxRecvBytes: maxRecvBytes})
	s.register(services, s.replica.Done())
	return services.DialOptions()
}

// ready waits until the replica can answer.
func (s *Server) ready(ctx context.Context) error {
	select {
	case <-s.replica.Ready():
		return nil
	default:
	}
	select {
	case <-s.replica.Ready():
		return nil
	case <-s.replica.Done():
		return rpctypes.ErrGRPCStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}
