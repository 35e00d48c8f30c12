// Package replica keeps one process's copy of the state: it tails a journal
// into mvcc, proposes records, answers reads, and fans changes out to
// watchers. It never decides an outcome by itself: the journal's order does.
package replica

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"log/slog"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// The closed set of errors beside mvcc's that a caller acts on.
var (
	// ErrTooLarge: the request does not fit in a record. It was not proposed.
	ErrTooLarge = errors.New("request is too large")
	// ErrBusy: too many requests are waiting. It was not proposed.
	ErrBusy = errors.New("too many requests")
	// ErrUnknown: the request was proposed, and whether it happened or will is
	// not known.
	ErrUnknown = errors.New("outcome is unknown")
	// ErrUnavailable: the journal did not answer in time. The request was not
	// proposed, and never will be.
	ErrUnavailable = errors.New("journal is unavailable")
	// ErrStopped: the replica is not running. The request was not proposed.
	ErrStopped = errors.New("replica is stopped")
	// ErrLostEnd: the journal ends before a slot that it is known to have held.
	ErrLostEnd = errors.New("the end of the journal is missing")
	// ErrDiverged: this replica's state at a slot differs from the one that
	// another recorded. Run ends with it; nothing is served from here on.
	ErrDiverged = errors.New("state diverged")
	// ErrForked: the journal holds records of two histories. Run ends with it;
	// nothing is written or served from here on.
	ErrForked = errors.New("the journal forked")
	// ErrLost: a record that was in the journal is there no more, and was not
	// trimmed. Run ends with it; its slot is not filled.
	ErrLost = errors.New("the journal lost a record")
)

// Config is what a replica needs. Store, Notifier and Logger are required.
type Config struct {
	Store    journal.Store
	Notifier notify.Notifier
	Logger   *slog.Logger
	// Name is what people call the journal, in messages, and holds no secret;
	// the journal's ID when empty.
	Name string

	// CompressFrom is the length of a batch, in bytes, from which on it is
	// compressed; 0 for never.
	CompressFrom int
	// Timeout bounds how long a request waits for the journal; 0 for 7 s, etcd's.
	Timeout time.Duration
	// Attempt bounds one call on the journal, which is then repeated; 0 for 15 s.
	Attempt time.Duration
	// Snapshots says when the state is written beside the journal.
	Snapshots snapshot.Policy
	// Trim lets the replica delete the records before the oldest snapshot that
	// is kept. Only the party that owns the journal may.
	Trim bool
}

const (
	defaultTimeout = 7 * time.Second
	defaultAttempt = 15 * time.Second
)

// Replica is one process's copy of the state. Its methods are safe for
// concurrent use; those that ask or propose need Run to be running.
type Replica struct {
	cfg    Config
	info   journal.Info
	writer mvcc.WriterID
	log    *slog.Logger

	queue queue // of proposals
	index index // of linearizable reads
	hub   hub   // of the newest published state, and of watchers

	health health // of the journal

	calls chan func(*loop) // runs on the loop
	ready chan struct{}    // closed once the tail was reached
	done  chan struct{}    // closed when Run has ended
}

// New returns a replica of the journal in cfg.Store; Run brings it to life.
func New(cfg Config) *Replica {
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.Attempt == 0 {
		cfg.Attempt = defaultAttempt
	}
	r := &Replica{
		cfg:    cfg,
		info:   cfg.Store.Info(),
		writer: newWriterID(),
		log:    cfg.Logger,
		calls:  make(chan func(*loop)),
		ready:  make(chan struct{}),
		done:   make(chan struct{}),
	}
	if cfg.Name == "" {
		r.cfg.Name = r.info.ID.String()
	}
	r.health.init(r.cfg.Name, r.log)
	r.queue.init()
	r.index.init()
	r.hub.init(mvcc.New().View())
	return r
}

func newWriterID() mvcc.WriterID {
	var b [8]byte
	rand.Read(b[:]) // never fails, by its contract
	return mvcc.WriterID(binary.LittleEndian.Uint64(b[:]) | 1)
}

// Writer is this process's name among those that write the journal.
func (r *Replica) Writer() mvcc.WriterID { return r.writer }

// Ready is closed once the replica has seen the journal's tail.
func (r *Replica) Ready() <-chan struct{} { return r.ready }

// Done is closed when Run has ended.
func (r *Replica) Done() <-chan struct{} { return r.done }

// View is the newest state this replica has: never older than what it has
// acknowledged or shown, but perhaps older than what other replicas have.
func (r *Replica) View() *mvcc.View { return r.hub.view.Load() }

// Journal tells of the journal underneath.
func (r *Replica) Journal() journal.Info { return r.info }

// Linearizable returns a state that holds every write that any replica
// acknowledged before the call. The error is ErrUnavailable, with the Outage if one
// is known, ErrStopped or that of ctx.
func (r *Replica) Linearizable(ctx context.Context) (*mvcc.View, error) {
	if r.info.Exclusive {
		select {
		case <-r.ready:
			return r.View(), nil
		default:
		}
	}
	w := r.index.ask()
	_, outage := r.health.reads.state()
	timeout := time.NewTimer(r.cfg.Timeout)
	defer timeout.Stop()
	select {
	case <-w:
		return r.View(), nil
	case <-outage:
		return nil, r.health.reads.because(ErrUnavailable)
	case <-timeout.C:
		return nil, ErrUnavailable
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-r.done:
		return nil, ErrStopped
	}
}

// Propose carries out one request and returns its outcome, once every slot up
// to its own is applied here. The request must not be changed afterwards. The
// error is nil, ErrTooLarge, ErrBusy, ErrUnavailable, ErrUnknown or
// ErrStopped; where ctx ended it, it wraps the error of ctx too, and where the
// journal does not answer, the Outage. What the state made of the request is in
// the result.
func (r *Replica) Propose(ctx context.Context, req *mvcc.Request) (mvcc.Result, error) {
	// A transaction whose branch only reads is answered without a record; that
	// it only reads must be true of the newest state.
	if _, ok := r.View().Answer(req); ok {
		v, err := r.Linearizable(ctx)
		if err != nil {
			return mvcc.Result{}, errors.Join(ErrUnavailable, err)
		}
		if res, ok := v.Answer(req); ok {
			return res, nil
		}
	}
	known, outage := r.health.writes.state()
	if known != nil {
		return mvcc.Result{}, r.health.writes.because(ErrUnavailable)
	}
	p, err := r.queue.add(req, r.maxBatch(), time.Now().Add(r.cfg.Timeout))
	if err != nil {
		return mvcc.Result{}, err
	}
	select {
	case <-p.done: // also when its time is over, and when Run has ended
	case <-outage:
		if p.withdraw() {
			return mvcc.Result{}, r.health.writes.because(ErrUnavailable)
		}
		// It is on its way. Only its end or the caller's patience says more.
		select {
		case <-p.done:
		case <-ctx.Done():
			return p.abandon(ctx.Err())
		}
	case <-ctx.Done():
		return p.abandon(ctx.Err())
	}
	res, err := p.outcome()
	return res, r.health.writes.because(err)
}

// Lease is what is known of one lease.
type Lease struct {
	ID        mvcc.LeaseID
	TTL       time.Duration // as granted
	Remaining time.Duration // by this replica's clock; below zero if it may go any moment
	Keys      []string
}

// Lease tells of one lease, as of a linearizable read. It is
// mvcc.ErrLeaseNotFound if there is none.
func (r *Replica) Lease(ctx context.Context, id mvcc.LeaseID) (Lease, error) {
	out := Lease{ID: id}
	if _, err := r.Linearizable(ctx); err != nil {
		return out, err
	}
	found := false
	err := r.call(ctx, func(l *loop) {
		var ttl int64
		if ttl, _, out.Keys, found = l.state.Lease(id); found {
			out.TTL = time.Duration(ttl) * time.Second
			out.Remaining = l.leases.remaining(id, out.TTL)
		}
	})
	if err == nil && !found {
		err = mvcc.ErrLeaseNotFound
	}
	return out, err
}

// Leases returns the IDs of all leases, in no order, as of a linearizable read.
func (r *Replica) Leases(ctx context.Context) ([]mvcc.LeaseID, error) {
	if _, err := r.Linearizable(ctx); err != nil {
		return nil, err
	}
	var ids []mvcc.LeaseID
	err := r.call(ctx, func(l *loop) {
		l.state.Leases(func(id mvcc.LeaseID, _ int64, _ journal.Slot) { ids = append(ids, id) })
	})
	return ids, err
}

// call runs f on the loop, which owns the state, and waits for it.
func (r *Replica) call(ctx context.Context, f func(*loop)) error {
	ran := make(chan struct{})
	select {
	case r.calls <- func(l *loop) { f(l); close(ran) }:
		<-ran
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-r.done:
		return ErrStopped
	}
}

// Hash is the hash of the state at the slot that this replica stands at, as
// snapshots name it: two replicas at one slot have the same.
func (r *Replica) Hash(ctx context.Context) (slot journal.Slot, hash [32]byte, err error) {
	callErr := r.call(ctx, func(l *loop) {
		slot = l.state.Slot()
		hash, err = snapshot.Hash(ctx, l.state.Freeze(), l.chains.Last())
	})
	return slot, hash, errors.Join(callErr, err)
}
