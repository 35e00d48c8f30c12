package gateway

import (
	"context"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/discovery"
	"github.com/xbernetes/xbernetes/internal/gateway/source"
)

// settleTime is how long after it knows its servers a gateway waits for the
// slow ones among them before it says who holds what.
const settleTime = 1500 * time.Millisecond

// registry runs the servers that the source names, and keeps the index true.
//
// One goroutine, run, decides; members only leave what they found and ring.
type registry struct {
	log   *slog.Logger
	index *discovery.Index
	house household
	tell  func(name string, status v1alpha1.RemoteAPIServerStatus)
	now   func() time.Time

	requireConformant bool

	cacheFile  string
	remembered source.Memory // in the cache file; run's own

	bell   chan struct{} // rings when there is something to do; holds one ring
	table  atomic.Pointer[table]
	ready  atomic.Bool
	kicked atomic.Int64 // when lookAgain last did, in nanoseconds

	mu      sync.Mutex
	wanted  []*v1alpha1.RemoteAPIServer // nil until the source has spoken
	members map[string]*member          // run's own
	running sync.WaitGroup
}

// table is what requests are routed by. It is never changed once made.
type table struct {
	servers map[string]*entry
	owned   discovery.Ownership
}

// entry is a server as requests see it.
type entry struct {
	server   *v1alpha1.RemoteAPIServer
	member   *member
	status   v1alpha1.RemoteAPIServerStatus
	withheld bool // it gets no requests: it is not known to be conformant, and has to be
}

// holder is the server that holds a group, or nil.
func (r *registry) holder(group string) *entry {
	table := r.table.Load()
	return table.servers[table.owned.Holder[group]]
}

func newRegistry(log *slog.Logger, index *discovery.Index, build func(*v1alpha1.RemoteAPIServer) (*connection, error)) *registry {
	r := &registry{
		log: log, index: index, now: time.Now,
		house: household{log: log, build: build, every: 10 * time.Second, wantsV2: index.WantsOpenAPIV2, turn: make(chan struct{}, 1)},
		tell:  func(string, v1alpha1.RemoteAPIServerStatus) {},
		bell:  make(chan struct{}, 1), members: map[string]*member{},
	}
	r.table.Store(&table{servers: map[string]*entry{}})
	return r
}

// set takes the source's word on which servers there are.
func (r *registry) set(servers []*v1alpha1.RemoteAPIServer) {
	r.mu.Lock()
	r.wanted = append([]*v1alpha1.RemoteAPIServer{}, servers...)
	r.mu.Unlock()
	r.ring()
}

func (r *registry) ring() {
	select {
	case r.bell <- struct{}{}:
	default:
	}
}

// run follows the source until ctx ends, and returns when every member has.
func (r *registry) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer r.running.Wait()
	defer stop()
	var deadline <-chan time.Time
	// Health changes without a ring.
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.bell:
		case <-tick.C:
		case <-deadline:
			r.ready.Store(true)
		}
		r.mu.Lock()
		wanted := r.wanted
		r.mu.Unlock()
		if wanted == nil {
			continue
		}
		if deadline == nil {
			r.index.Remember(source.Held(wanted))
			timer := time.NewTimer(settleTime)
			defer timer.Stop()
			deadline = timer.C
		}
		r.follow(ctx, wanted)
		r.publish()
	}
}

// follow starts, restarts and stops members.
func (r *registry) follow(ctx context.Context, wanted []*v1alpha1.RemoteAPIServer) {
	keep := map[string]bool{}
	for _, s := range wanted {
		keep[s.Name] = true
		m := r.members[s.Name]
		if m != nil && (m.server == s || sameConnection(&m.server.Spec, &s.Spec) && m.server.UID == s.UID) {
			m.server = s
			continue
		}
		next := newMember(s, r.ring)
		if m != nil {
			m.stop()
			if m.server.UID == s.UID {
				next.found = m.look() // what it serves stays known while it is asked again
				next.gone, next.leave = m.gone, m.leave
			} else {
				m.leave()
			}
			r.log.Info("server changed", "server", s.Name)
		} else {
			r.log.Info("server added", "server", s.Name, "urls", s.Spec.BaseURLs())
		}
		r.members[s.Name] = next
		ctx, cancel := context.WithCancel(ctx)
		next.stop = cancel
		r.running.Go(func() { next.run(ctx, s, r.house) })
	}
	for name, m := range r.members {
		if !keep[name] {
			m.stop()
			m.leave()
			delete(r.members, name)
			r.log.Info("server removed", "server", name)
		}
	}
}

// sameConnection says whether two specs reach a server in the same way, so
// that what is connected may stay so. Whether there is a guard is part of it: a
// gateway without a core server has no way to a guarded one.
func sameConnection(a, b *v1alpha1.RemoteAPIServerSpec) bool {
	x, y := *a, *b
	if (x.Guard == v1alpha1.Guard{}) != (y.Guard == v1alpha1.Guard{}) {
		return false
	}
	for _, s := range []*v1alpha1.RemoteAPIServerSpec{&x, &y} {
		s.Groups, s.Priority, s.Guard, s.ServerAddressByClientCIDRs = nil, 0, v1alpha1.Guard{}, nil
	}
	return equality.Semantic.DeepEqual(x, y)
}

// publish says who holds what, to requests and to whoever reads status.
func (r *registry) publish() {
	members := make([]discovery.Member, 0, len(r.members))
	withheld := map[string]bool{}
	tried := true
	for name, m := range r.members {
		found := m.look()
		tried = tried && found.tried
		withheld[name] = r.requireConformant && !found.admitted()
		members = append(members, discovery.Member{
			Name: name, Named: m.server.Spec.Groups, Priority: m.server.Spec.Priority, Created: m.server.CreationTimestamp.Time,
			Addresses: addresses(&m.server.Spec), Document: found.document, OpenAPI: found.openAPI,
			Withheld: withheld[name],
		})
	}
	if tried {
		r.ready.Store(true)
	}
	if !r.ready.Load() {
		return
	}
	before := r.table.Load()
	routed := &table{servers: make(map[string]*entry, len(r.members))}
	for name, m := range r.members {
		e := &entry{server: m.server, member: m, status: m.server.Status, withheld: withheld[name]}
		if old := before.servers[name]; old != nil && old.server.UID == m.server.UID {
			e.status = old.status
		}
		routed.servers[name] = e
	}
	next := &table{servers: make(map[string]*entry, len(r.members))}
	next.owned = r.index.SetRouted(members, func(owned discovery.Ownership) {
		routed.owned = owned
		r.table.Store(routed)
	})
	for name, m := range r.members {
		e := &entry{server: m.server, member: m, withheld: withheld[name]}
		last := routed.servers[name].status
		e.status = statusOf(r.observe(m, next.owned, e.withheld), last)
		next.servers[name] = e
		r.say(name, last.Conditions, e.status.Conditions)
		if !equality.Semantic.DeepEqual(e.status, m.server.Status) {
			r.tell(name, e.status)
		}
	}
	r.table.Store(next)
	r.remember(next)
}

// say tells the log of conditions that have changed.
func (r *registry) say(server string, before, now []metav1.Condition) {
	for _, c := range now {
		if old := meta.FindStatusCondition(before, c.Type); old == nil || old.Status != c.Status || old.Reason != c.Reason {
			r.log.Info("condition changed", "server", server, "condition", c.Type, "status", string(c.Status), "reason", c.Reason, "message", c.Message)
		}
	}
}

// remember writes what is known to the cache file, if it has changed.
func (r *registry) remember(t *table) {
	if r.cacheFile == "" {
		return
	}
	memory := source.Memory{Held: t.owned.Holder}
	for _, e := range t.servers {
		s := e.server.DeepCopy()
		s.Status, s.ManagedFields = v1alpha1.RemoteAPIServerStatus{}, nil
		memory.Servers = append(memory.Servers, s)
	}
	slices.SortFunc(memory.Servers, func(a, b *v1alpha1.RemoteAPIServer) int { return strings.Compare(a.Name, b.Name) })
	if equality.Semantic.DeepEqual(memory, r.remembered) {
		return
	}
	if err := source.Remember(r.cacheFile, memory); err != nil {
		r.log.Warn("what is known cannot be kept", "error", err)
	}
	r.remembered = memory
}

// hasOpenAPIv2 says whether every server that answers was asked for OpenAPI v2.
func (r *registry) hasOpenAPIv2() bool {
	for _, e := range r.table.Load().servers {
		if f := e.member.look(); f.err == nil && f.invalid == nil && f.tried && !f.openAPIv2 {
			return false
		}
	}
	return true
}

// lookAgain asks every server for its discovery, once a second at most: somebody
// wants to know what there is, or a group that none is known to have.
func (r *registry) lookAgain() {
	last, now := r.kicked.Load(), r.now().UnixNano()
	if now-last < int64(time.Second) || !r.kicked.CompareAndSwap(last, now) {
		return
	}
	for _, e := range r.table.Load().servers {
		e.member.kick()
	}
}

// addresses are where clients reach a server themselves: what its spec says,
// or its first base URL without the scheme.
func addresses(spec *v1alpha1.RemoteAPIServerSpec) []metav1.ServerAddressByClientCIDR {
	if len(spec.ServerAddressByClientCIDRs) > 0 {
		return spec.ServerAddressByClientCIDRs
	}
	for _, raw := range spec.BaseURLs() {
		if u, err := url.Parse(raw); err == nil {
			address := u.Host
			if u.Path != "/" {
				address += u.Path
			}
			return []metav1.ServerAddressByClientCIDR{
				{ClientCIDR: "0.0.0.0/0", ServerAddress: address},
				{ClientCIDR: "::/0", ServerAddress: address},
			}
		}
	}
	return nil
}
