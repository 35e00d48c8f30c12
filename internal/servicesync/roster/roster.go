// Package roster reads the peers of a cluster, each independently of the others, and
// remembers the peers that it no longer reads. It never writes to a peer, and decides
// nothing about a Service.
package roster

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/access"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
	"github.com/xbernetes/xbernetes/internal/servicesync/peers"
)

// Config says which peers are read, and how.
type Config struct {
	Own       clusterset.ID // a peer of this name is the cluster itself, and is not read
	Source    peers.Source
	Pace      access.Pace
	Agent     string // the user agent of clients
	Namespace string // where a peer publishes if its Namespace is empty
	Forgotten map[clusterset.ID]bool
	Events    Events
	Log       *slog.Logger
}

// Events are the calls by which a roster tells of changes, from its own goroutines.
type Events struct {
	// Changed: what a peer publishes of a Service has changed; initial says that it
	// came with a first list.
	Changed func(k types.NamespacedName, id clusterset.ID, initial bool)
	// StandingChanged: something that holds for all Services of a peer has changed.
	StandingChanged func(p *Peer)
	// Confirmed: the peer is now known, or no longer known, to have no publication
	// that was not seen. That changes decisions only about Services that the peer lacks.
	Confirmed func(p *Peer)
	// Stopped: a peer is no longer read; gone says that no source names it any more.
	Stopped func(id clusterset.ID, gone bool)
	// Named: the peers that are read, or that are still to be reported as read.
	Named func(names []string)
}

// Roster reads the peers that a source names. It is safe for concurrent use.
type Roster struct {
	Config
	named chan struct{} // closed once the source has named its peers for the first time

	mu sync.Mutex
	// reading are the peers that are read now.
	reading map[clusterset.ID]*reading
	// memory is what is known of peers that were read once. While a peer is read, its
	// own memory is newer.
	memory map[clusterset.ID]memory
	faulty map[string]peers.Peer // by origin: entries of the source that cannot be used
	// recalled are the peers that an earlier process read. They are reported as read
	// until all sources have been read, because a source may still name them.
	recalled []string
}

// reading is a peer that is read, for the lifetime of a context: stop ends it.
type reading struct {
	*Peer
	stop context.CancelFunc
	over chan struct{} // closed when the reading has ended
}

// New returns a roster without peers; it reads nothing before Run.
func New(c Config) *Roster {
	return &Roster{
		Config: c, named: make(chan struct{}),
		reading: make(map[clusterset.ID]*reading), memory: make(map[clusterset.ID]memory), faulty: make(map[string]peers.Peer),
	}
}

// Recall reads what an earlier process wrote about its peers in the own lease.
func (r *Roster) Recall(lease *v1alpha1.ClusterLease, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recalled = lease.Spec.Peers
	for _, p := range lease.Status.Peers {
		if p.State != "" { // "": the status is of an entry that names no peer
			r.memory[clusterset.ID(p.Cluster)] = recall(p, now)
		}
	}
}

// Run reads the peers that the source names until ctx ends.
func (r *Roster) Run(ctx context.Context) error {
	err := r.Source.Run(ctx, func(found []peers.Peer) { r.set(ctx, found) })
	r.end(r.all()...)
	return err
}

// endPatience is how long end waits for a reading to end. A credential plugin that hangs
// cannot be stopped.
const endPatience = 2 * time.Second

// end stops readings and waits until they are over, for at most endPatience. A reading
// that goes on after that belongs to no peer of the roster, and is ignored.
func (r *Roster) end(all ...*reading) {
	for _, p := range all {
		p.stop()
	}
	patience, cancel := context.WithTimeout(context.Background(), endPatience)
	defer cancel()
	for _, p := range all {
		select {
		case <-p.over:
			continue
		case <-patience.Done():
		}
		select {
		case <-p.over: // this reading ended while end waited for another
		default:
			r.Log.Warn("a peer's client does not stop, and is left running; does a credential plugin hang?", "peer", p.id, "origin", p.origin)
		}
	}
}

// set reads the peers found, and stops reading all others.
func (r *Roster) set(ctx context.Context, found []peers.Peer) {
	usable, faulty := r.sort(found)
	for _, p := range r.all() {
		if now, ok := usable[p.id]; !ok || now.Fingerprint != p.fingerprint {
			r.stop(p, !ok)
		}
	}
	r.mu.Lock()
	r.faulty = faulty
	if !slices.ContainsFunc(found, func(p peers.Peer) bool { return p.Unread }) {
		r.recalled = nil
	}
	r.mu.Unlock()
	for id, p := range usable {
		if r.get(id) == nil {
			r.start(ctx, id, p)
		}
	}
	r.Events.Named(r.names())
	select {
	case <-r.named:
	default:
		close(r.named) // set is called from one goroutine only
	}
}

// sort separates usable peers, by name, from faulty ones, by origin, and logs new faults.
// A peer with a fault and an older Config is in both.
func (r *Roster) sort(found []peers.Peer) (usable map[clusterset.ID]peers.Peer, faulty map[string]peers.Peer) {
	usable, faulty = make(map[clusterset.ID]peers.Peer), make(map[string]peers.Peer)
	for _, p := range found {
		id := clusterset.ID(p.Name)
		if id == r.Own {
			continue // the same folder may be given to all clusters
		}
		if why := content.IsDNS1123Label(p.Name); len(why) > 0 && p.Config != nil {
			p.Err, p.Config = fmt.Errorf("%s gives the name %q, which no cluster has: %s; rename it", p.Origin, p.Name, why[0]), nil
		}
		if p.Err != nil {
			faulty[p.Origin] = p
			r.mu.Lock()
			was, known := r.faulty[p.Origin]
			r.mu.Unlock()
			if !known || was.Err.Error() != p.Err.Error() {
				r.Log.Warn("an entry of the peers cannot be used; the others are not affected", "peer", p.Name, "origin", p.Origin, "reason", p.Err)
			}
		}
		if p.Config != nil {
			usable[id] = p
		}
	}
	return usable, faulty
}

// start begins to read a peer. A fault of the peer delays no other.
func (r *Roster) start(ctx context.Context, id clusterset.ID, found peers.Peer) {
	p, err := r.open(id, found)
	if err != nil {
		r.Log.Warn("peer cannot be read; the others are not affected", "peer", id, "origin", found.Origin, "reason", err)
		return
	}
	ctx, stop := context.WithCancel(ctx)
	now := &reading{Peer: p, stop: stop, over: make(chan struct{})}
	r.mu.Lock()
	r.reading[id] = now
	r.mu.Unlock()
	r.Log.Info("reading peer", "peer", id, "origin", found.Origin, "server", found.Config.Host, "namespace", p.namespace)
	go func() {
		defer close(now.over)
		_ = p.run(ctx) // it returns when ctx ends, without an error
	}()
}

// open makes the clients and informers of a peer.
func (r *Roster) open(id clusterset.ID, found peers.Peer) (*Peer, error) {
	a, err := access.New(found.Config, r.Pace, r.Agent)
	if err != nil {
		return nil, err
	}
	if found.Namespace == "" {
		found.Namespace = r.Namespace
	}
	r.mu.Lock()
	m, known := r.memory[id]
	r.mu.Unlock()
	if !known {
		m = memory{heard: time.Now()}
	}
	return r.newPeer(id, found, a, m)
}

// stop stops reading a peer. The peer's endpoints stay in use until the last lease that
// was read of it expires.
func (r *Roster) stop(p *reading, gone bool) {
	r.end(p)
	p.mu.Lock()
	m := p.memory
	p.mu.Unlock()
	r.mu.Lock()
	delete(r.reading, p.id)
	r.memory[p.id] = m
	r.mu.Unlock()
	if gone {
		r.Log.Info("peer is no longer read; its endpoints stay in use until its lease expires", "peer", p.id, "origin", p.origin)
	}
	r.Events.Stopped(p.id, gone)
}

// standingChanged reports a change of a peer as a whole, unless the peer is no longer read.
func (r *Roster) standingChanged(p *Peer, before, now standing) {
	if now := r.get(p.id); now == nil || now.Peer != p {
		return
	}
	if now.health != before.health || now.synced != before.synced {
		r.Log.Info("peer", "peer", p.id, "state", p.state(now.health), "synced", now.synced, "confirmed", now.confirmed)
	}
	before.confirmed = now.confirmed
	if before != now {
		r.Events.StandingChanged(p)
	} else {
		r.Events.Confirmed(p)
	}
}

// names returns the peers to report as read.
func (r *Roster) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := slices.Clone(r.recalled)
	for id := range r.reading {
		names = append(names, string(id))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (r *Roster) get(id clusterset.ID) *reading {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reading[id]
}

func (r *Roster) all() []*reading {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.reading))
}

// Await waits until the source has named its peers and each was read or has a fault.
func (r *Roster) Await(ctx context.Context) {
	r.await(ctx, func(p *reading) bool { return p.synced() || p.faulty() })
}

// AwaitRead waits until the source has named its peers and each was read. It returns
// those that were not read before ctx ended.
func (r *Roster) AwaitRead(ctx context.Context) []string {
	return r.await(ctx, func(p *reading) bool { return p.synced() })
}

func (r *Roster) await(ctx context.Context, done func(*reading) bool) (missing []string) {
	select {
	case <-r.named:
	case <-ctx.Done():
	}
	for _, p := range r.all() {
		for ctx.Err() == nil && !done(p) {
			access.Pause(ctx, 10*time.Millisecond)
		}
		if !done(p) {
			missing = append(missing, string(p.id))
		}
	}
	return missing
}
