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
	"github.com/xbernetes/xbernetes/internal/gateway/discovery/ownership"
	"github.com/xbernetes/xbernetes/internal/gateway/source"
)

// startTimeout is how long a starting gateway waits for slow servers before it decides
// which server holds which group.
const startTimeout = 1500 * time.Millisecond

// registry has a member for each server that the source names, and decides which
// server holds which group.
//
// One goroutine, run, decides. Members note what they find and ring; requests read
// the table.
type registry struct {
	log               *slog.Logger
	index             *discovery.Index
	shared            shared
	tell              func(name string, status v1alpha1.RemoteAPIServerStatus) // told of each status that differs from the object's
	now               func() time.Time
	requireConformant bool // servers that are not conformant get no requests
	cache             cache

	bell  chan struct{} // rings when there is something to decide; holds one
	table atomic.Pointer[table]
	ready atomic.Bool  // the table may be used: each server was asked, or startTimeout has passed
	asked atomic.Int64 // when askAgain last kicked the members, in nanoseconds

	members map[string]*member // by name; only run uses it
	running sync.WaitGroup     // of members' goroutines

	mu     sync.Mutex
	wanted []*v1alpha1.RemoteAPIServer // the servers that the source named last; nil before that; guarded by mu
}

// table says where requests go. It does not change once it is stored.
type table struct {
	servers map[string]*entry
	owned   ownership.Assignment
}

// entry is a server as a request sees it.
type entry struct {
	server   *v1alpha1.RemoteAPIServer
	member   *member
	status   v1alpha1.RemoteAPIServerStatus
	withheld bool // the server gets no requests, because it must be conformant and is not known to be
}

// holder returns the server that holds a group, or nil.
func (r *registry) holder(group string) *entry {
	table := r.table.Load()
	return table.servers[table.owned.Holder[group]]
}

func newRegistry(log *slog.Logger, index *discovery.Index, connect func(*v1alpha1.RemoteAPIServer) (*connection, error)) *registry {
	r := &registry{
		log: log, index: index, now: time.Now,
		shared: shared{log: log, connect: connect, every: 10 * time.Second, wantsV2: index.WantsOpenAPIV2, turn: make(chan struct{}, 1)},
		tell:   func(string, v1alpha1.RemoteAPIServerStatus) {},
		bell:   make(chan struct{}, 1), members: map[string]*member{},
	}
	r.table.Store(&table{servers: map[string]*entry{}})
	return r
}

// set replaces the servers by the source's new list.
func (r *registry) set(servers []*v1alpha1.RemoteAPIServer) {
	r.mu.Lock()
	r.wanted = append([]*v1alpha1.RemoteAPIServer{}, servers...)
	r.mu.Unlock()
	r.ring()
}

// ring makes run decide anew. It never blocks.
func (r *registry) ring() {
	select {
	case r.bell <- struct{}{}:
	default:
	}
}

// run decides, at each ring and once a second, until ctx ends. It returns when the
// goroutines of all members have ended.
func (r *registry) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer r.running.Wait()
	defer stop()
	var deadline <-chan time.Time
	// The health of servers changes without a ring.
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
			timer := time.NewTimer(startTimeout)
			defer timer.Stop()
			deadline = timer.C
		}
		r.follow(ctx, wanted)
		r.publish()
	}
}

// follow starts members for new servers, stops those of removed servers, and replaces those
// of servers whose connection changes.
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
				next.found = m.known() // the server's groups stay known while the new member asks
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
		r.running.Go(func() { next.run(ctx, s, r.shared) })
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

// sameConnection says whether two specs lead to the same connection, which can then stay.
// It also compares whether the server is guarded, because a gateway without a core server
// builds no connection to a guarded server.
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

// publish decides which server holds which group. It stores the decision for requests, in
// the table and the index, and then for people, in the servers' statuses, which take a
// while to write.
func (r *registry) publish() {
	members := make([]discovery.Member, 0, len(r.members))
	withheld := map[string]bool{}
	tried := true
	for name, m := range r.members {
		found := m.known()
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
	next.owned = r.index.SetRouted(members, func(owned ownership.Assignment) {
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
	r.cache.remember(next, r.log)
}

// say logs conditions that have changed.
func (r *registry) say(server string, before, now []metav1.Condition) {
	for _, c := range now {
		if old := meta.FindStatusCondition(before, c.Type); old == nil || old.Status != c.Status || old.Reason != c.Reason {
			r.log.Info("condition changed", "server", server, "condition", c.Type, "status", string(c.Status), "reason", c.Reason, "message", c.Message)
		}
	}
}

// cache is the file that the gateway reads at its next start.
type cache struct {
	file    string        // "": nowhere
	written source.Memory // the content of the file; only the registry's run uses it
}

// remember writes the table to the file, if it has changed.
func (c *cache) remember(t *table, log *slog.Logger) {
	if c.file == "" {
		return
	}
	memory := source.Memory{Held: t.owned.Holder}
	for _, e := range t.servers {
		s := e.server.DeepCopy()
		s.Status, s.ManagedFields = v1alpha1.RemoteAPIServerStatus{}, nil
		memory.Servers = append(memory.Servers, s)
	}
	slices.SortFunc(memory.Servers, func(a, b *v1alpha1.RemoteAPIServer) int { return strings.Compare(a.Name, b.Name) })
	if equality.Semantic.DeepEqual(memory, c.written) {
		return
	}
	if err := source.Remember(c.file, memory); err != nil {
		log.Warn("the cache file cannot be written", "error", err)
	}
	c.written = memory
}

// hasOpenAPIv2 says whether each answering server has been asked for its OpenAPI v2.
func (r *registry) hasOpenAPIv2() bool {
	for _, e := range r.table.Load().servers {
		if f := e.member.known(); f.err == nil && f.invalid == nil && f.tried && !f.openAPIv2 {
			return false
		}
	}
	return true
}

// askAgain makes each member fetch discovery now, at most once a second. It is called when
// a caller reads the discovery, or asks for a group that no server is known to have.
func (r *registry) askAgain() {
	last, now := r.asked.Load(), r.now().UnixNano()
	if now-last < int64(time.Second) || !r.asked.CompareAndSwap(last, now) {
		return
	}
	for _, e := range r.table.Load().servers {
		e.member.kick()
	}
}

// addresses returns the addresses at which clients reach a server directly: those of its
// spec, or the host of its first base URL.
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
