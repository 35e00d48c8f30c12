package etcdapi

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/replica"
)

// errTooManyLeases has no counterpart in etcd.
var errTooManyLeases = status.Error(codes.ResourceExhausted, "etcdserver: too many leases; revoke some, or let them expire")

// outcomes maps the errors of the state machine to etcd's. Requests that are wrong in every
// state were refused before, by package wire or by the method.
var outcomes = []struct{ from, to error }{
	{mvcc.ErrCompacted, rpctypes.ErrGRPCCompacted},
	{mvcc.ErrFutureRevision, rpctypes.ErrGRPCFutureRev},
	{mvcc.ErrLeaseNotFound, rpctypes.ErrGRPCLeaseNotFound},
	{mvcc.ErrLeaseTTLTooLarge, rpctypes.ErrGRPCLeaseTTLTooLarge},
	{mvcc.ErrTooManyLeases, errTooManyLeases},
	{mvcc.ErrLeaseExists, rpctypes.ErrGRPCLeaseExist},
	{mvcc.ErrDuplicateKey, rpctypes.ErrGRPCDuplicateKey},
	{mvcc.ErrKeyNotFound, rpctypes.ErrGRPCKeyNotFound},

	{replica.ErrTooLarge, rpctypes.ErrGRPCRequestTooLarge},
	{replica.ErrBusy, rpctypes.ErrGRPCRequestTooManyRequests},
}

// failures maps the errors of requests without an outcome, except for the client's own
// deadline and cancellation. The order matters: if the outcome is unknown, the answer is
// "request timed out", whatever else is true, because the request may have happened.
var failures = []struct {
	from, to error
	reason   string // of the details, where the journal is known to be away
}{
	{replica.ErrUnknown, rpctypes.ErrGRPCTimeout, OutcomeUnknown},
	{replica.ErrStopped, rpctypes.ErrGRPCStopped, ""},
	{replica.ErrUnavailable, rpctypes.ErrGRPCNoLeader, NotDone},
}

// If an outage of the journal causes an error, the message says so, and the error has an
// ErrorInfo of this domain with the reason. etcd's errors have no ErrorInfo; a client that
// looks only at codes sees etcd's.
const (
	ErrorDomain    = "etcdapi.xbernetes.io"
	NotDone        = "NOT_DONE"        // the request was not carried out, and never will be
	OutcomeUnknown = "OUTCOME_UNKNOWN" // it was carried out, or still may be, or neither
)

// away returns the error to with the text of an outage, and an ErrorInfo with the reason.
func away(to error, reason string, o *replica.Outage) error {
	told := status.New(status.Code(to), o.Error())
	if detailed, err := told.WithDetails(&errdetails.ErrorInfo{Domain: ErrorDomain, Reason: reason}); err == nil {
		told = detailed
	}
	return told.Err()
}

// rpcError returns err as the error that etcd would answer.
func rpcError(err error) error {
	for _, o := range outcomes {
		if errors.Is(err, o.from) {
			return o.to
		}
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(context.DeadlineExceeded).Err()
	case errors.Is(err, context.Canceled):
		return status.FromContextError(context.Canceled).Err()
	}
	for _, f := range failures {
		if errors.Is(err, f.from) {
			if o := (*replica.Outage)(nil); f.reason != "" && errors.As(err, &o) {
				return away(f.to, f.reason, o)
			}
			return f.to
		}
	}
	return status.Error(codes.Unknown, err.Error())
}
