package etcdapi

import (
	"context"
	"hash/crc32"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/xbernetes/xbernetes/internal/etcdapi/wire"
	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// memberName is the name of the one member that clients see, whichever server of a journal
// they reach.
const memberName = "xb"

// Status implements etcdserverpb.MaintenanceServer. It gives the journal's slot as the Raft
// index.
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

// HashKV implements etcdserverpb.MaintenanceServer: it returns a checksum of all keys at a
// revision. It serves to compare two servers of this project; etcd's checksum differs,
// because it covers history too.
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

// Alarm implements etcdserverpb.MaintenanceServer. There are no alarms to list or disarm.
func (s *service) Alarm(ctx context.Context, r *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	if r.Action == pb.AlarmRequest_ACTIVATE {
		return s.UnimplementedMaintenanceServer.Alarm(ctx, r)
	}
	return &pb.AlarmResponse{Header: s.header(s.replica.View().Revision())}, nil
}

// Defragment implements etcdserverpb.MaintenanceServer. It does nothing, because no storage
// here fragments.
func (s *service) Defragment(context.Context, *pb.DefragmentRequest) (*pb.DefragmentResponse, error) {
	return &pb.DefragmentResponse{Header: s.header(s.replica.View().Revision())}, nil
}

// MemberList implements etcdserverpb.ClusterServer. The one member is the server that
// answers.
func (s *service) MemberList(context.Context, *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	header := s.header(0)
	return &pb.MemberListResponse{
		Header:  header,
		Members: []*pb.Member{{ID: s.memberID, Name: memberName, ClientURLs: s.cfg.ClientURLs, PeerURLs: s.cfg.ClientURLs}},
	}, nil
}
