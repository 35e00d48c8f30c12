package etcdapi

import (
	"context"
	"hash/crc32"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/xbernetes/xbernetes/internal/etcdapi/wire"
	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// memberName is the name of the one member that clients see, whichever of the
// servers on a journal they reach.
const memberName = "xb"

// Status implements etcdserverpb.MaintenanceServer. The journal's slot stands
// where etcd has the Raft index.
func (s *service) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	view := s.replica.View()
	resp := &pb.StatusResponse{
		Header:           s.header(view.Revision()),
		Version:          Version,
		StorageVersion:   "3.7.0",
		Leader:           s.memberID,
		RaftIndex:        uint64(view.Slot()),
		RaftAppliedIndex: uint64(view.Slot()),
		RaftTerm:         1,
		DowngradeInfo:    &pb.DowngradeInfo{},
		DbSize:           1, // etcdctl divides by it
	}
	if s.cfg.Size != nil {
		resp.DbSize = max(1, s.cfg.Size())
	}
	resp.DbSizeInUse = resp.DbSize
	return resp, nil
}

// HashKV implements etcdserverpb.MaintenanceServer: a checksum of all keys as
// they are at a revision. Two of our servers can be held against each other by
// it; etcd's covers history too, and differs.
func (s *service) HashKV(ctx context.Context, r *pb.HashKVRequest) (*pb.HashKVResponse, error) {
	view, err := s.read(ctx, false)
	if err != nil {
		return nil, rpcError(err)
	}
	rev := mvcc.Revision(r.Revision)
	if rev <= 0 {
		rev = view.Revision()
	}
	res, err := view.Read(mvcc.KeyRange{Key: "\x00", End: mvcc.FromKey}, mvcc.ReadOptions{Revision: rev})
	if err != nil {
		return nil, rpcError(err)
	}
	hash := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	var b []byte
	for _, kv := range res.KVs {
		b = wire.AppendKeyValue(b[:0], kv)
		hash.Write(b)
	}
	return &pb.HashKVResponse{
		Header:          s.header(view.Revision()),
		Hash:            hash.Sum32(),
		CompactRevision: int64(view.Compacted()),
		HashRevision:    int64(rev),
	}, nil
}

// Alarm implements etcdserverpb.MaintenanceServer: there are no alarms, so
// none can be listed or disarmed.
func (s *service) Alarm(ctx context.Context, r *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	if r.Action == pb.AlarmRequest_ACTIVATE {
		return s.UnimplementedMaintenanceServer.Alarm(ctx, r)
	}
	return &pb.AlarmResponse{Header: s.header(s.replica.View().Revision())}, nil
}

// Defragment implements etcdserverpb.MaintenanceServer: there is nothing that
// could be fragmented.
func (s *service) Defragment(context.Context, *pb.DefragmentRequest) (*pb.DefragmentResponse, error) {
	return &pb.DefragmentResponse{Header: s.header(s.replica.View().Revision())}, nil
}

// MemberList implements etcdserverpb.ClusterServer: the one member is the
// server asked.
func (s *service) MemberList(context.Context, *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	header := s.header(0)
	return &pb.MemberListResponse{
		Header:  header,
		Members: []*pb.Member{{ID: s.memberID, Name: memberName, ClientURLs: s.cfg.ClientURLs, PeerURLs: s.cfg.ClientURLs}},
	}, nil
}
