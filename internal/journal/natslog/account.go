package natslog

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// checkAccount refuses an account, and a user, with which one of the journal's streams could
// be made and the other could not, before any is made. All other limits already keep the
// first one from being made.
func (s *server) checkAccount(ctx context.Context, cfg Config, records, blobs stream) error {
	if s.readOnly {
		return nil // none will be made
	}
	var account jetstream.AccountInfo
	err := s.ask(ctx, "$JS.API.INFO", struct{}{}, &account)
	if err == nil { // the journal does not need the right to ask
		tier := account.Tier
		if limited, ok := account.Tiers[fmt.Sprint("R", cfg.Replicas)]; ok {
			tier = limited
		}
		if most := tier.Limits.MaxStreams; most > 0 && tier.Streams+2 > most {
			return fmt.Errorf("the account may hold %d streams and holds %d, and a journal needs two; raise max_streams in its JetStream limits, or delete streams that nobody needs", most, tier.Streams)
		}
	}
	if err := records.mayCreate(ctx); err != nil {
		return err
	}
	return blobs.mayCreate(ctx)
}

// mayCreate returns an error if the user may not create the stream, and creates nothing:
// what it sends is a configuration without a name, which the server refuses.
func (s stream) mayCreate(ctx context.Context) error {
	var answer struct{}
	err := s.server.ask(ctx, "$JS.API.STREAM.CREATE."+s.name, jetstream.StreamConfig{}, &answer)
	var refused *jetstream.APIError
	if errors.As(err, &refused) {
		return nil
	}
	return err
}

// advice says what to do about errors of JetStream that come from how the account, or the
// cluster, is set up.
var advice = map[jetstream.ErrorCode]string{
	10002: "the account has no room left; raise max_file in its JetStream limits, or delete streams that nobody needs",
	10005: "the cluster has too few servers for the replicas that are asked for; correct replicas= in the journal URL, or add servers",
	10023: "the servers have no room left; raise max_file_store in their jetstream blocks, or delete streams that nobody needs",
	10027: "the account holds as many streams as it may; raise max_streams in its JetStream limits, or delete streams that nobody needs",
	10047: "the servers have no room left; raise max_file_store in their jetstream blocks, or delete streams that nobody needs",
	10074: "the server is in no cluster, and keeps streams on one server only; correct replicas= in the journal URL, or name the servers of a cluster",
	10113: "the account wants every stream to have a limit in bytes, at which a journal would end; switch max_bytes_required off in its JetStream limits",

	jetstream.JSErrCodeJetStreamNotEnabled:           "JetStream is off at this server; switch it on in its configuration",
	jetstream.JSErrCodeJetStreamNotEnabledForAccount: "JetStream is off for this account; switch it on in the servers' configuration",
}

// explain adds what a person can do about an error of JetStream's.
func explain(err *jetstream.APIError) error {
	if do, ok := advice[err.ErrorCode]; ok {
		return fmt.Errorf("%s: %w", do, err)
	}
	return err
}

// explainConnect adds what a person can do about an error of a connection.
func explainConnect(err error) error {
	said := strings.ToLower(err.Error()) // nats.go has errors for these, and returns them later only
	switch {
	case errors.Is(err, nats.ErrAuthorization):
		return fmt.Errorf("the server does not let the user in; correct the user in the journal URL and NATS_PASSWORD, or the file that creds= or nkey= names: %w", err)
	case strings.Contains(said, "authentication expired"), strings.Contains(said, "authentication revoked"):
		return fmt.Errorf("the user's credentials are not valid any more; renew the file that creds= names: %w", err)
	case errors.Is(err, nats.ErrNoServers):
		return fmt.Errorf("no server answers; check that they run, and their hosts and ports in the journal URL: %w", err)
	}
	return err
}
