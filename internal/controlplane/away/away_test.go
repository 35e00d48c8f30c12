package away

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
)

func silent(reason, domain string) error {
	s, err := grpcstatus.New(codes.Unavailable, "journal j does not answer").WithDetails(&errdetails.ErrorInfo{Domain: domain, Reason: reason})
	if err != nil {
		panic(err) // it is a message that can be marshalled
	}
	return s.Err()
}

// A store that is away is 503, with its own words. A write is that only if the
// store says that it was not made; else it is 504, and never a conflict.
func TestStoreErrorsInTheWordsOfTheAPI(t *testing.T) {
	other := errors.New("another trouble")
	for _, test := range []struct {
		err         error
		read, write int32 // codes; 0: as it was
	}{
		{nil, 0, 0},
		{other, 0, 0},
		{context.DeadlineExceeded, 0, 0},
		{apierrors.NewBadRequest("no"), 0, 0},
		{silent("NOT_DONE", domain), 503, 503},
		{silent("OUTCOME_UNKNOWN", domain), 503, 504},
		{silent("SOMETHING_NEW", domain), 503, 504},
		{silent("NOT_DONE", "kms.example.com"), 0, 0},
		{grpcstatus.Error(codes.Unavailable, "key service is away"), 0, 0},
		{rpctypes.ErrTimeout, 503, 504},
		{rpctypes.ErrNoLeader, 503, 504},
		{rpctypes.ErrCompacted, 0, 0},
	} {
		for what, got := range map[string]struct {
			err  error
			want int32
		}{"read": {ReadError(test.err), test.read}, "write": {WriteError(test.err), test.write}} {
			var told apierrors.APIStatus
			switch {
			case got.want == 0:
				if got.err != test.err { //nolint:errorlint // the very same
					t.Errorf("%s: %v became %v", what, test.err, got.err)
				}
			case !errors.As(got.err, &told) || told.Status().Code != got.want:
				t.Errorf("%s: %v became %v, want %d", what, test.err, got.err, got.want)
			case apierrors.IsConflict(got.err) || apierrors.IsAlreadyExists(got.err):
				t.Errorf("%s: %v became a conflict", what, test.err)
			}
		}
	}
}

func TestReadinessAsksTheStore(t *testing.T) {
	var away error
	probe := func(name string) healthz.HealthChecker {
		return healthz.NamedCheck(name, func(*http.Request) error { return errors.New("it asked the store") })
	}
	c := &genericapiserver.Config{
		HealthzChecks: []healthz.HealthChecker{healthz.PingHealthz, probe("etcd")},
		ReadyzChecks:  []healthz.HealthChecker{healthz.PingHealthz, probe("etcd"), probe("etcd-readiness")},
	}
	Check(c, func() error { return away })
	failing := func() (names []string) {
		for _, h := range append(c.ReadyzChecks, c.HealthzChecks...) {
			if h.Check(nil) != nil {
				names = append(names, h.Name())
			}
		}
		return names
	}
	if got := failing(); len(got) > 0 {
		t.Errorf("with a store that answers, these fail: %v", got)
	}
	away = errors.New("journal j does not answer")
	if got := failing(); len(got) != 2 || got[0] != journalCheck || got[1] != journalCheck {
		t.Errorf("with a store that is away, these fail: %v", got)
	}
}
