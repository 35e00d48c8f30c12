package etcdapi

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
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
		{mvcc.ErrLeaseTTLTooLarge, rpctypes.ErrGRPCLeaseTTLTooLarge},
		{mvcc.ErrTooManyLeases, errTooManyLeases},
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

// Where the journal is known to be away, the message says which and why, the code
// stays etcd's, and what became of the request can be told from the details.
func TestErrorsTellOfAnOutage(t *testing.T) {
	outage := &replica.Outage{Journal: "s3://b/p", Since: time.Date(2026, 1, 2, 12, 0, 3, 0, time.UTC), Cause: errors.New("connection refused")}
	const want = "journal s3://b/p does not answer since 12:00:03 UTC: connection refused"
	for reason, err := range map[string]error{
		NotDone:        fmt.Errorf("%w: %w", replica.ErrUnavailable, outage),
		OutcomeUnknown: fmt.Errorf("%w: %w", replica.ErrUnknown, outage),
	} {
		got := status.Convert(rpcError(err))
		if got.Code() != codes.Unavailable || got.Message() != want || len(got.Details()) != 1 {
			t.Fatalf("%v is told as %v", err, got)
		}
		if info, ok := got.Details()[0].(*errdetails.ErrorInfo); !ok || info.Domain != ErrorDomain || info.Reason != reason {
			t.Errorf("%v has the details %v, want %s", err, got.Details(), reason)
		}
	}
}
