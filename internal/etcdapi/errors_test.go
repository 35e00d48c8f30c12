package etcdapi

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/replica"
)

func TestErrorsAreEtcds(t *testing.T) {
	for _, test := range []struct{ err, want error }{
		{mvcc.ErrCompacted, rpctypes.ErrGRPCCompacted},
		{mvcc.ErrFutureRevision, rpctypes.ErrGRPCFutureRev},
		{mvcc.ErrLeaseNotFound, rpctypes.ErrGRPCLeaseNotFound},
		{mvcc.ErrLeaseExists, rpctypes.ErrGRPCLeaseExist},
		{mvcc.ErrDuplicateKey, rpctypes.ErrGRPCDuplicateKey},
		{mvcc.ErrKeyNotFound, rpctypes.ErrGRPCKeyNotFound},
		{fmt.Errorf("9 bytes: %w", replica.ErrTooLarge), rpctypes.ErrGRPCRequestTooLarge},
		{replica.ErrBusy, rpctypes.ErrGRPCRequestTooManyRequests},
		{replica.ErrUnknown, rpctypes.ErrGRPCTimeout},
		// Whether it happened is not known, whatever stopped us from knowing.
		{errors.Join(replica.ErrUnknown, replica.ErrStopped), rpctypes.ErrGRPCTimeout},
		{errors.Join(replica.ErrUnknown, context.DeadlineExceeded), status.FromContextError(context.DeadlineExceeded).Err()},
		{errors.Join(replica.ErrUnavailable, replica.ErrStopped), rpctypes.ErrGRPCStopped},
		{errors.Join(replica.ErrUnavailable, context.Canceled), status.FromContextError(context.Canceled).Err()},
		{replica.ErrUnavailable, rpctypes.ErrGRPCNoLeader},
		{replica.ErrStopped, rpctypes.ErrGRPCStopped},
		{replica.ErrDiverged, status.Error(codes.Unknown, replica.ErrDiverged.Error())},
	} {
		if got := rpcError(test.err); status.Code(got) != status.Code(test.want) || got.Error() != test.want.Error() {
			t.Errorf("%v is told as %v, want %v", test.err, got, test.want)
		}
	}
}
