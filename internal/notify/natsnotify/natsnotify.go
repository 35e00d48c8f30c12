// Package natsnotify brings hints to a replica by a NATS subject, and publishes those of
// the replica there, over a connection of its own. It never reads a stream, and never
// decides what a hint is worth.
package natsnotify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/notify"
)

const (
	// answering is how long the server may take to answer.
	answering = 5 * time.Second
	// maxPayload is the length of the longest payload that is read, in bytes: a slot.
	maxPayload = 20
	// maxWaiting and maxWaitingBytes bound the hints that wait to be read. Further
	// ones are dropped.
	maxWaiting      = 64
	maxWaitingBytes = 1 << 20
)

// Config says where hints come and go.
type Config struct {
	// Connect connects to the journal's servers, with further options.
	Connect func(...nats.Option) (*nats.Conn, error)
	// Subject is where the servers of one journal, and nobody else, publish and
	// subscribe. No stream may keep what is published there.
	Subject string
	// Logger is told when notifications stop or come back, and why.
	Logger *slog.Logger
}

// Source is a server's place at a subject. It implements notify.Source.
type Source struct {
	*notify.Outbox
	cfg Config
}

var _ notify.Source = (*Source)(nil)

// New returns a source. It connects when Run runs.
func New(cfg Config) *Source { return &Source{notify.NewOutbox(), cfg} }

// Run implements notify.Source.
func (s *Source) Run(ctx context.Context, to *notify.Woken) {
	trouble := notify.Trouble{Log: s.cfg.Logger, Means: "notifications neither come nor go; polling"}
	for {
		err := s.session(ctx, func() { trouble.Note(ctx, nil); to.Up() }, to.Heard)
		if ctx.Err() != nil {
			return
		}
		to.Down()
		trouble.Note(ctx, err)
		if trouble.Pause(ctx) != nil {
			return
		}
	}
}

// session sends and receives until something fails. It calls up once the server has
// taken the subscription.
func (s *Source) session(ctx context.Context, up func(), heard func(journal.Slot)) error {
	denied := make(chan error, 1)
	conn, err := s.cfg.Connect(
		nats.Timeout(answering), nats.NoReconnect(), nats.NoEcho(),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			select {
			case denied <- lacksRight(err):
			default:
			}
		}),
	)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close()
	hints, err := conn.SubscribeSync(s.cfg.Subject)
	if err == nil {
		err = hints.SetPendingLimits(maxWaiting, maxWaitingBytes)
	}
	if err == nil {
		err = conn.FlushTimeout(answering)
	}
	if err == nil {
		err = lacksRight(conn.LastError()) // the server says so before it answers the flush
	}
	if err != nil {
		return fmt.Errorf("subscribe to %s: %w", s.cfg.Subject, err)
	}
	up()
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return receive(ctx, hints, heard) })
	all.Go(func() error { return s.send(ctx, conn) })
	all.Go(func() error { return await(ctx, denied) })
	return all.Wait()
}

// lacksRight says what to do if err is that the user lacks a right; otherwise it is nil.
// Other errors of a connection either end it, or say that hints were dropped.
func lacksRight(err error) error {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return nil
	}
	return fmt.Errorf("the NATS user lacks a right that README.md of the driver lists: %w", err)
}

// await returns the first error that comes.
func await(ctx context.Context, errs <-chan error) error {
	for {
		select {
		case err := <-errs:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *Source) send(ctx context.Context, conn *nats.Conn) error {
	for {
		slot, err := s.Take(ctx)
		if err != nil {
			return err
		}
		if err := conn.Publish(s.cfg.Subject, strconv.AppendUint(nil, uint64(slot), 10)); err != nil {
			return fmt.Errorf("publish to %s: %w", s.cfg.Subject, err)
		}
	}
}

func receive(ctx context.Context, hints *nats.Subscription, heard func(journal.Slot)) error {
	for {
		msg, err := hints.NextMsgWithContext(ctx)
		switch {
		case errors.Is(err, nats.ErrSlowConsumer): // hints were dropped, as hints may be
			continue
		case err != nil:
			return fmt.Errorf("receive notifications: %w", err)
		}
		if slot := parse(msg.Data); slot != 0 {
			heard(slot)
		}
	}
}

// parse reads a slot in decimal digits. What is something else is slot 0.
func parse(payload []byte) journal.Slot {
	if len(payload) > maxPayload {
		return 0
	}
	slot, err := strconv.ParseUint(string(payload), 10, 64)
	if err != nil {
		return 0
	}
	return journal.Slot(slot)
}
