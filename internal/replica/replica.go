// Package replica keeps one process's copy of the state: it follows a journal, applies
// its records with mvcc, proposes records, answers reads, and wakes watchers. It never
// decides an outcome by itself: the journal's order does.
//
// A proposal goes from queue to a batch (batch.go), which launch (loop.go) places in a
// slot; access calls the journal; the window (window.go) holds what is in flight; and
// apply.go applies what comes next, publishes the state and tells the proposer.
package replica

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/record"
	"github.com/xbernetes/xbernetes/internal/replica/access"
	"github.com/xbernetes/xbernetes/internal/replica/archive"
	"github.com/xbernetes/xbernetes/internal/replica/stats"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// The closed set of errors, besides mvcc's, that a caller acts on.
var (
	// ErrTooLarge: the request does not fit in a record, and was not proposed.
	ErrTooLarge = errors.New("request is too large")
	// ErrBusy: too many requests are waiting. The request was not proposed.
	ErrBusy = errors.New("too many requests")
	// ErrUnknown: the request was proposed. It may have happened, may happen later, or
	// may never happen.
	ErrUnknown = errors.New("outcome is unknown")
	// ErrUnavailable: the journal did not answer in time. The request was not
	// proposed, and never will be.
	ErrUnavailable = errors.New("journal is unavailable")
	// ErrStopped: the replica is not running. The request was not proposed.
	ErrStopped = errors.New("replica is stopped")
	// ErrLostEnd: the journal ends before a slot that it is known to have held.
	ErrLostEnd = access.ErrLostEnd
	// ErrDiverged: this replica's state at a slot differs from the state that another
	// replica recorded. Run ends with it, and the replica serves nothing any more.
	ErrDiverged = errors.New("state diverged")
	// ErrForked: the journal holds records of two histories. Run ends with it, and the
	// replica writes and serves nothing any more.
	ErrForked = errors.New("the journal forked")
	// ErrLost: a record that was in the journal is gone, and was not trimmed. Run ends
	// with it, and does not fill the slot.
	ErrLost = access.ErrLost
)

// Config is what a replica needs. Store, Notifier and Logger are required.
type Config struct {
	Store    journal.Store
	Notifier notify.Notifier
	Logger   *slog.Logger
	// Name is the journal's name in messages. It holds no secret. Empty: the journal's
	// ID.
	Name string

	// CompressFrom is the least length, in bytes, of a batch that is compressed; 0:
	// batches are never compressed.
	CompressFrom int
	// Timeout bounds how long a request waits for the journal; 0 for 7 s, etcd's.
	Timeout time.Duration
	// Attempt bounds one attempt of a call on the journal; 0 for 15 s.
	Attempt time.Duration
	// Snapshots says when the state is written beside the journal.
	Snapshots snapshot.Policy
	// Trim lets the replica delete the records before the oldest snapshot that is
	// kept. Only the party that owns the journal may set it.
	Trim bool
}

const (
	defaultTimeout = 7 * time.Second
	defaultAttempt = 15 * time.Second
)

// Replica is one process's copy of the state. Its methods are safe for concurrent use.
// The methods that read or propose need Run to be running.
type Replica struct {
	cfg    Config
	info   journal.Info
	writer mvcc.WriterID
	log    *slog.Logger
	counts *stats.Replica

	queue queue // of proposals
	index index // of linearizable reads
	hub   hub   // of the newest published state, and of watchers

	access  *access.Access   // calls the journal
	archive *archive.Archive // the journal with its snapshots

	calls chan func(*loop) // functions for the loop to run
	ready chan struct{}    // closed once the tail was reached
	done  chan struct{}    // closed when Run has ended
}

// New returns a replica of the journal in cfg.Store. It does nothing before Run.
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
		counts: stats.New(),
		calls:  make(chan func(*loop)),
		ready:  make(chan struct{}),
		done:   make(chan struct{}),
	}
	if cfg.Name == "" {
		r.cfg.Name = r.info.ID.String()
	}
	r.access = access.New(access.Config{Store: cfg.Store, Name: r.cfg.Name, Timeout: cfg.Timeout, Attempt: cfg.Attempt, Logger: r.log, Counts: &r.counts.Calls})
	r.archive = archive.New(cfg.Store, r.access, r.writer, r.log)
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

// Writer returns this replica's ID among the writers of the journal.
func (r *Replica) Writer() mvcc.WriterID { return r.writer }

// Ready is closed once the replica has seen the journal's tail.
func (r *Replica) Ready() <-chan struct{} { return r.ready }

// Done is closed when Run has ended.
func (r *Replica) Done() <-chan struct{} { return r.done }

// View returns the newest state of this replica. It is never older than what this
// replica has acknowledged or shown, but perhaps older than what other replicas have.
func (r *Replica) View() *mvcc.View { return r.hub.view.Load() }

// Journal returns what is known of the journal underneath.
func (r *Replica) Journal() journal.Info { return r.info }

// Counts returns what this replica counts. The caller only reads it.
func (r *Replica) Counts() *stats.Replica { return r.counts }

// Waiting returns how many requests wait to be written, and their weight in bytes.
func (r *Replica) Waiting() (requests, bytes int) { return r.queue.length() }

// Linearizable returns a state that holds every write that any replica acknowledged
// before the call. The error is ErrStopped, that of ctx, or ErrUnavailable, with the
// Outage if one is known.
func (r *Replica) Linearizable(ctx context.Context) (*mvcc.View, error) {
	if r.info.Exclusive {
		select {
		case <-r.ready:
			return r.View(), nil
		default:
		}
	}
	w := r.index.ask()
	r.counts.ReadsAsked.Add(1)
	_, outage := r.access.Reads().State()
	timeout := time.NewTimer(r.cfg.Timeout)
	defer timeout.Stop()
	select {
	case <-w:
		return r.View(), nil
	case <-outage:
		return nil, because(r.access.Reads(), ErrUnavailable)
	case <-timeout.C:
		return nil, ErrUnavailable
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-r.done:
		return nil, ErrStopped
	}
}

// Propose carries out one request and returns its result, once every slot up to the
// request's is applied here. The request must not be changed afterwards. The error is nil,
// ErrTooLarge, ErrBusy, ErrUnavailable, ErrUnknown or ErrStopped. If ctx ended, the error
// wraps the error of ctx too; if the journal does not answer, it wraps the Outage. If the
// state refuses the request, the result says so, and the error is nil.
func (r *Replica) Propose(ctx context.Context, req *mvcc.Request) (mvcc.Result, error) {
	// A transaction that only reads is answered without a record. The first Answer, on
	// a state that may be old, only tells whether the transaction takes a branch that
	// reads. The second one, on the newest state, counts.
	if _, ok := r.View().Answer(req); ok {
		v, err := r.Linearizable(ctx)
		if err != nil {
			err = errors.Join(ErrUnavailable, err)
			r.count(err)
			return mvcc.Result{}, err
		}
		if res, ok := v.Answer(req); ok {
			r.count(nil)
			return res, nil
		}
	}
	results, err := r.ProposeTogether(ctx, req)
	if err != nil {
		return mvcc.Result{}, err
	}
	return results[0], nil
}

// ProposeTogether carries out requests in one record of the journal, one right after the
// other, and returns their results. No read, and no other request, sees the state between
// two of them. Errors are those of Propose.
func (r *Replica) ProposeTogether(ctx context.Context, reqs ...*mvcc.Request) ([]mvcc.Result, error) {
	results, err := r.propose(ctx, reqs)
	r.count(err)
	return results, err
}

// count counts a request, by what its caller is told.
func (r *Replica) count(err error) {
	switch {
	case err == nil:
		r.counts.Requests.Applied.Add(1)
	case errors.Is(err, ErrUnknown):
		r.counts.Requests.Unknown.Add(1)
	case errors.Is(err, ErrUnavailable):
		r.counts.Requests.Unavailable.Add(1)
	case errors.Is(err, ErrBusy):
		r.counts.Requests.Busy.Add(1)
	default:
		r.counts.Requests.Refused.Add(1)
	}
}

func (r *Replica) propose(ctx context.Context, reqs []*mvcc.Request) ([]mvcc.Result, error) {
	known, outage := r.access.Writes().State()
	if known != nil {
		return nil, because(r.access.Writes(), ErrUnavailable)
	}
	p, err := r.queue.add(r.maxBatch(), time.Now().Add(r.cfg.Timeout), reqs...)
	if err != nil {
		return nil, err
	}
	select {
	case <-p.done: // also once the wait is over, or Run has ended
	case <-outage:
		if p.withdraw() {
			return nil, because(r.access.Writes(), ErrUnavailable)
		}
		// A batch has the proposal: wait for the outcome, or for the end of ctx.
		select {
		case <-p.done:
		case <-ctx.Done():
			return p.giveUp(ctx.Err())
		}
	case <-ctx.Done():
		return p.giveUp(ctx.Err())
	}
	results, err := p.outcome()
	return results, because(r.access.Writes(), err)
}

// Outage says which journal does not answer, since when, and why. Errors wrap it beside
// ErrUnavailable or ErrUnknown, which say what became of a request.
type Outage = access.Outage

// Outage returns the journal's outage, or nil if the journal answers as far as the calls
// under way show. A replica that follows its journal learns of an outage within seconds.
func (r *Replica) Outage() *Outage {
	o, _ := r.access.Writes().State()
	return o
}

// because adds the outage that is known now to err, if err says that the journal did
// not answer.
func because(lane *access.Lane, err error) error {
	if !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUnknown) {
		return err
	}
	if o, _ := lane.State(); o != nil {
		return fmt.Errorf("%w: %w", err, o)
	}
	return err
}

// Lease is what this replica knows of one lease.
type Lease struct {
	ID        mvcc.LeaseID
	TTL       time.Duration // as granted
	Remaining time.Duration // by this replica's clock; below zero if the lease may expire at any moment
	Keys      []string
}

// Lease returns one lease, as of a linearizable read. The error is one of Linearizable's,
// or mvcc.ErrLeaseNotFound.
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
			out.Remaining = l.leases.Remaining(id, out.TTL)
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

// maxBatch is the greatest weight of a batch.
func (r *Replica) maxBatch() int {
	return min(r.info.MaxRecord-record.Overhead-16, mvcc.MaxBatchWeight)
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

// Hash returns the last slot that this replica has applied, and the hash of its state
// there, as snapshots name it. Replicas at the same slot have the same hash.
func (r *Replica) Hash(ctx context.Context) (slot journal.Slot, hash [32]byte, err error) {
	callErr := r.call(ctx, func(l *loop) {
		slot = l.state.Slot()
		hash, err = snapshot.Hash(ctx, l.state.Freeze(), l.chains.Last())
	})
	return slot, hash, errors.Join(callErr, err)
}
