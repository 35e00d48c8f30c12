package etcdapi

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// minLeaseTTL is the shortest time to live of a lease, in seconds. It is etcd's, which
// follows from the least election timeout there.
const minLeaseTTL = 2

// newLeaseID draws a positive lease ID.
func newLeaseID() mvcc.LeaseID {
	var b [8]byte
	rand.Read(b[:]) // never fails, by its contract
	return mvcc.LeaseID(binary.LittleEndian.Uint64(b[:])&math.MaxInt64 | 1)
}

// LeaseGrant implements etcdserverpb.LeaseServer.
func (s *service) LeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	if r.TTL > mvcc.MaxLeaseTTL {
		return nil, rpctypes.ErrGRPCLeaseTTLTooLarge
	}
	id, ttl := mvcc.LeaseID(r.ID), max(r.TTL, minLeaseTTL)
	if id == 0 {
		id = newLeaseID()
	}
	res, err := s.propose(ctx, &mvcc.Request{Kind: mvcc.LeaseGrant, Lease: id, TTL: ttl}, 0)
	if err != nil {
		return nil, err
	}
	return &pb.LeaseGrantResponse{Header: s.header(res.Revision), ID: int64(id), TTL: ttl}, nil
}

// LeaseRevoke implements etcdserverpb.LeaseServer.
func (s *service) LeaseRevoke(ctx context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	res, err := s.propose(ctx, &mvcc.Request{Kind: mvcc.LeaseRevoke, Lease: mvcc.LeaseID(r.ID)}, 0)
	if err != nil {
		return nil, err
	}
	return &pb.LeaseRevokeResponse{Header: s.header(res.Revision)}, nil
}

// LeaseKeepAlive implements etcdserverpb.LeaseServer. A lease that is gone is
// answered with a time to live of 0.
func (s *service) LeaseKeepAlive(stream pb.Lease_LeaseKeepAliveServer) error {
	ended := make(chan error, 1)
	go func() { ended <- s.keepAlive(stream) }()
	select {
	case err := <-ended:
		return err
	case <-stream.Context().Done():
		return rpcError(stream.Context().Err())
	case <-s.stop:
		return rpctypes.ErrGRPCStopped
	}
}

// keepAlives bounds how many requests of one stream are answered together.
const keepAlives = 256

// keepAlive answers a stream's requests in their order. Requests that come while earlier ones
// are answered are proposed together, and share a record. If each had to wait for the one
// before, a client with many leases would lose them at a distant journal.
func (s *service) keepAlive(stream pb.Lease_LeaseKeepAliveServer) error {
	asked, ended := make(chan *pb.LeaseKeepAliveRequest, keepAlives), make(chan error, 1)
	go func() {
		defer close(asked)
		ended <- receive(stream, asked)
	}()
	for first := range asked {
		ids := []mvcc.LeaseID{mvcc.LeaseID(first.ID)}
		for len(asked) > 0 {
			ids = append(ids, mvcc.LeaseID((<-asked).ID))
		}
		if err := s.renewAll(stream, ids); err != nil {
			return err
		}
	}
	return <-ended
}

// renewAll renews leases together, each of them once, and answers in order.
func (s *service) renewAll(stream pb.Lease_LeaseKeepAliveServer, ids []mvcc.LeaseID) error {
	type renewal struct {
		resp *pb.LeaseKeepAliveResponse
		err  error
	}
	renewals := map[mvcc.LeaseID]*renewal{}
	var all sync.WaitGroup
	for _, id := range ids {
		if renewals[id] != nil {
			continue
		}
		r := &renewal{}
		renewals[id] = r
		all.Go(func() { r.resp, r.err = s.renew(stream.Context(), id) })
	}
	all.Wait()
	for _, id := range ids {
		r := renewals[id]
		if r.err != nil {
			return r.err
		}
		if err := stream.Send(r.resp); err != nil {
			return err
		}
	}
	return nil
}

// renew renews a lease; the time to live is 0 if there is no such lease. The answer has the
// revision of the renewal, so that a client never sees a lease alive at a revision at which
// it was gone.
func (s *service) renew(ctx context.Context, id mvcc.LeaseID) (*pb.LeaseKeepAliveResponse, error) {
	res, err := s.replica.Propose(ctx, &mvcc.Request{Kind: mvcc.LeaseRenew, Lease: id})
	if err != nil {
		return nil, rpcError(err)
	}
	return &pb.LeaseKeepAliveResponse{Header: s.header(res.Revision), ID: int64(id), TTL: res.TTL}, nil
}

// LeaseTimeToLive implements etcdserverpb.LeaseServer. A lease that is gone is
// answered with a time to live of -1.
func (s *service) LeaseTimeToLive(ctx context.Context, r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	lease, err := s.replica.Lease(ctx, mvcc.LeaseID(r.ID))
	resp := &pb.LeaseTimeToLiveResponse{Header: s.header(s.replica.View().Revision()), ID: r.ID}
	switch {
	case errors.Is(err, mvcc.ErrLeaseNotFound):
		resp.TTL = -1
		return resp, nil
	case err != nil:
		return nil, rpcError(err)
	}
	resp.TTL, resp.GrantedTTL = int64(lease.Remaining.Seconds()), int64(lease.TTL.Seconds())
	if r.Keys {
		for _, key := range lease.Keys {
			resp.Keys = append(resp.Keys, []byte(key))
		}
	}
	return resp, nil
}

// LeaseLeases implements etcdserverpb.LeaseServer.
func (s *service) LeaseLeases(ctx context.Context, _ *pb.LeaseLeasesRequest) (*pb.LeaseLeasesResponse, error) {
	ids, err := s.replica.Leases(ctx)
	if err != nil {
		return nil, rpcError(err)
	}
	slices.Sort(ids)
	resp := &pb.LeaseLeasesResponse{Header: s.header(s.replica.View().Revision()), Leases: make([]*pb.LeaseStatus, len(ids))}
	for i, id := range ids {
		resp.Leases[i] = &pb.LeaseStatus{ID: int64(id)}
	}
	return resp, nil
}
