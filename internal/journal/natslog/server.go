package natslog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/xbernetes/xbernetes/internal/backoff"
	"github.com/xbernetes/xbernetes/internal/journal"
)

// server is the connection to the servers, and the calls that wait for their answers.
type server struct {
	conn     *nats.Conn
	readOnly bool

	life context.Context // ends when the journal is closed
	end  context.CancelCauseFunc

	mu    sync.Mutex
	calls map[*call]struct{} // those in flight; guarded by mu
}

// call is a request in flight.
type call struct {
	subject string
	cancel  context.CancelCauseFunc
}

// answerTimeout is how long an answer is waited for. A server that is there answers
// within one write to its disk.
const answerTimeout = 10 * time.Second

var (
	errReadOnly = errors.New("journal is open for reading only")
	// errClosedMeanwhile ends calls that are under way when the journal is closed. It
	// is not ErrClosed, which says that nothing was stored.
	errClosedMeanwhile = errors.New("the journal was closed meanwhile")
	errDisconnected    = errors.New("the connection to the server was lost")
	errNoAnswer        = fmt.Errorf("no answer within %v", answerTimeout)
)

func connect(cfg Config) (*server, error) {
	s := &server{readOnly: cfg.ReadOnly, calls: map[*call]struct{}{}}
	conn, err := cfg.Connect(
		nats.MaxReconnects(-1),
		nats.ReconnectWait(200*time.Millisecond),
		nats.ReconnectJitter(200*time.Millisecond, 200*time.Millisecond),
		nats.ReconnectBufSize(-1),   // a call fails at once while there is no connection
		nats.IgnoreAuthErrorAbort(), // credentials may be mended
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { s.denied(err) }),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { s.cancel("", errDisconnected) }),
	)
	if err != nil {
		return nil, err
	}
	s.conn = conn
	s.life, s.end = context.WithCancelCause(context.Background())
	return s, nil
}

func (s *server) close() {
	s.end(nil)
	s.cancel("", errClosedMeanwhile)
	s.conn.Close()
}

// begin starts a call of the journal.
func (s *server) begin(ctx context.Context) error {
	if s.life.Err() != nil {
		return journal.ErrClosed
	}
	return context.Cause(ctx)
}

// beginWrite is begin for a call that changes something.
func (s *server) beginWrite(ctx context.Context) error {
	if s.readOnly {
		return errReadOnly
	}
	return s.begin(ctx)
}

// denied ends the calls that the user may not make: the server says so beside them,
// and does not answer them.
func (s *server) denied(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	_, rest, _ := strings.Cut(err.Error(), `"`)
	subject, _, _ := strings.Cut(rest, `"`)
	if strings.Contains(err.Error(), "Subscription") {
		s.cancel("", fmt.Errorf("the NATS user may not subscribe to %s, where answers come; give the right, or name a prefix that the user may subscribe to as inbox= in the journal URL", subject))
		return
	}
	s.cancel(subject, fmt.Errorf("the NATS user may not publish to %s; README.md of the driver lists the rights that are needed", subject))
}

// cancel ends the calls to subject, or all calls if it is empty.
func (s *server) cancel(subject string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.calls {
		if subject == "" || c.subject == subject {
			c.cancel(err)
		}
	}
}

// send publishes a message and returns its answer. After an error, whether the message
// arrived is unknown.
func (s *server) send(ctx context.Context, msg *nats.Msg) (*nats.Msg, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ctx, stop := context.WithTimeoutCause(ctx, answerTimeout, errNoAnswer)
	defer stop()
	c := &call{msg.Subject, cancel}
	s.mu.Lock()
	s.calls[c] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.calls, c)
		s.mu.Unlock()
	}()
	if s.life.Err() != nil {
		return nil, errClosedMeanwhile
	}
	answer, err := s.conn.RequestMsgWithContext(ctx, msg)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, nats.ErrReconnectBufExceeded): // nothing is kept to be sent later
		return nil, errors.New("there is no connection to any of the servers")
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("nobody answers at %s: there is no such stream, JetStream is off for this account, or it has no leader at the moment: %w", msg.Subject, err)
	}
	return answer, err
}

// decode reads an answer of JetStream's API, or the error that it holds instead.
func decode(answer *nats.Msg, value any) error {
	var failed struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &failed); err != nil {
		return fmt.Errorf("the server's answer cannot be read: %w", err)
	}
	if failed.Error != nil {
		return explain(failed.Error)
	}
	if err := json.Unmarshal(answer.Data, value); err != nil {
		return fmt.Errorf("the server's answer cannot be read: %w", err)
	}
	return nil
}

// ask sends a request of JetStream's API.
func (s *server) ask(ctx context.Context, subject string, request, value any) error {
	data, err := json.Marshal(request)
	if err != nil {
		return err
	}
	answer, err := s.send(ctx, &nats.Msg{Subject: subject, Data: data})
	if err != nil {
		return err
	}
	return decode(answer, value)
}

// publish publishes a message for a stream, on the conditions that header holds, and
// returns its sequence number.
func (s *server) publish(ctx context.Context, subject string, header nats.Header, data []byte) (uint64, error) {
	answer, err := s.send(ctx, &nats.Msg{Subject: subject, Header: header, Data: data})
	if err != nil {
		return 0, err
	}
	var ack jetstream.PubAck
	if err := decode(answer, &ack); err != nil {
		return 0, err
	}
	if ack.Stream == "" || ack.Sequence == 0 || ack.Duplicate {
		return 0, errors.New("the server's acknowledgement does not say where the message is")
	}
	return ack.Sequence, nil
}

// codes of JetStream's errors that jetstream does not name.
const (
	codeNotFound  = jetstream.JSErrCodeMessageNotFound
	codeNoStream  = jetstream.JSErrCodeStreamNotFound
	codeNameInUse = jetstream.JSErrCodeStreamNameInUse
	codeWrongLast = jetstream.JSErrCodeStreamWrongLastSequence
	// codeWrongLastReplicated is codeWrongLast of a stream with replicas.
	codeWrongLastReplicated = jetstream.JSErrCodeStreamWrongLastSequenceConstant
)

// isCode says whether err is JetStream's answer, with one of these codes.
func isCode(err error, codes ...jetstream.ErrorCode) bool {
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return false
	}
	for _, code := range codes {
		if api.ErrorCode == code {
			return true
		}
	}
	return false
}

// between is how long to wait before something is tried again.
var between = backoff.Backoff{First: 2 * time.Millisecond, Last: 200 * time.Millisecond}

// attempts is how often it is tried.
const attempts = 10
