package discovery

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	clientdiscovery "k8s.io/client-go/discovery"

	"github.com/xbernetes/xbernetes/internal/gateway/discovery/ownership"
	"github.com/xbernetes/xbernetes/internal/gateway/discovery/swagger"
)

// Member is one server as the index sees it.
type Member struct {
	// Name is the server's name.
	Name string
	// Named are the groups of its spec.
	Named []string
	// Priority and Created decide which server gets a group that no server holds.
	Priority int32
	Created  time.Time
	// Addresses are where clients can reach the server directly.
	Addresses []metav1.ServerAddressByClientCIDR
	// Document is the server's discovery; nil if it is not known.
	Document *Document
	// OpenAPI is the server's OpenAPI; nil if it is not known.
	OpenAPI *OpenAPIDocument
	// Withheld: the server keeps the groups that it held and gets no other, and none of
	// its groups is shown.
	Withheld bool
}

// Index is the merged discovery of all servers. Set may be called from one goroutine at a
// time; the other methods are safe for concurrent use.
type Index struct {
	api, apis aggregated.ResourceManager
	view      atomic.Pointer[view]
	openapi   openapi

	mu        sync.Mutex           // guards what follows
	installed map[string]placement // by group: the placements that api and apis hold
	held      map[string]string    // the last holder of each group
}

// placement is the server and document that a group comes from.
type placement struct {
	server    string
	priority  int
	group     *apidiscoveryv2.APIGroupDiscovery
	addresses []metav1.ServerAddressByClientCIDR
}

// view is the state that requests are answered from. It does not change once it is made.
type view struct {
	holder   map[string]string
	groups   map[string]*group
	ordered  []*group            // all but the core group
	versions map[string][]string // group versions by server
	version  json.RawMessage
}

type group struct {
	placement
	api      metav1.APIGroup
	versions map[string]*metav1.APIResourceList
}

// NewIndex makes an index that holds nothing.
func NewIndex() *Index {
	x := &Index{
		api:       aggregated.NewResourceManager("/api"),
		apis:      aggregated.NewResourceManager("/apis"),
		installed: map[string]placement{},
		held:      map[string]string{},
		openapi:   openapi{merged: swagger.New()},
	}
	x.openapi.v3.Store(render(rootV3(nil, nil)))
	x.view.Store(&view{holder: map[string]string{}, groups: map[string]*group{}})
	return x
}

// Remember sets the last holder of each group that has no known holder yet.
func (x *Index) Remember(held map[string]string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for group, server := range held {
		if _, known := x.held[group]; !known {
			x.held[group] = server
		}
	}
}

// Set replaces the members, and returns which of them holds which group. It touches only
// groups whose server, document or place has changed.
func (x *Index) Set(members []Member) ownership.Assignment {
	return x.SetRouted(members, func(ownership.Assignment) {})
}

// SetRouted is Set with a call of route before clients can see the new assignment: a client
// asks for a group as soon as it sees it, and its request must then be routed.
func (x *Index) SetRouted(members []Member, route func(ownership.Assignment)) ownership.Assignment {
	x.mu.Lock()
	defer x.mu.Unlock()
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
	claims := make([]ownership.Claim, 0, len(members))
	for i := range members {
		claims = append(claims, members[i].claim(x.held))
		if members[i].Withheld {
			members[i].Document, members[i].OpenAPI = nil, nil
		}
	}
	owned := ownership.Assign(claims, x.held)
	moved := !maps.Equal(x.held, owned.Holder)
	x.held = owned.Holder
	route(owned)
	wanted := placements(members, owned)
	for name, p := range x.installed {
		if _, ok := wanted[name]; !ok {
			x.uninstall(name, p)
		}
	}
	before := x.view.Load()
	next := &view{holder: owned.Holder, groups: make(map[string]*group, len(wanted)), version: version(members, owned)}
	for name, p := range wanted {
		if old, ok := x.installed[name]; ok && old.same(p) {
			next.groups[name] = before.groups[name]
		} else {
			x.install(name, old, p)
			next.groups[name] = newGroup(p)
		}
		if name != "" {
			next.ordered = append(next.ordered, next.groups[name])
		}
	}
	slices.SortFunc(next.ordered, func(a, b *group) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.api.Name, b.api.Name))
	})
	next.versions = next.versionsOf()
	x.view.Store(next)
	groups := map[string][]string{}
	for _, g := range slices.Sorted(maps.Keys(owned.Holder)) {
		groups[owned.Holder[g]] = append(groups[owned.Holder[g]], g)
	}
	x.openapi.set(members, owned, groups, moved)
	return owned
}

// Holder returns the server that holds a group.
func (x *Index) Holder(group string) (server string, ok bool) {
	server, ok = x.view.Load().holder[group]
	return server, ok
}

// Holders returns the holder of each group. The caller must not change the map.
func (x *Index) Holders() map[string]string { return x.view.Load().holder }

// GroupVersions returns the versions of the groups that each server holds, as
// group/version, sorted. The caller must not change the map.
func (x *Index) GroupVersions() map[string][]string { return x.view.Load().versions }

// versionsOf returns the group versions of each server.
func (v *view) versionsOf() map[string][]string {
	out := map[string][]string{}
	for _, g := range v.groups {
		for _, version := range g.api.Versions {
			out[g.server] = append(out[g.server], version.GroupVersion)
		}
	}
	for _, gvs := range out {
		slices.Sort(gvs)
	}
	return out
}

// WantsOpenAPIV2 says whether a client has asked for OpenAPI v2, which is fetched only after
// that.
func (x *Index) WantsOpenAPIV2() bool { return x.openapi.wanted.Load() }

// WantOpenAPIV2 asks for OpenAPI v2 from now on. It returns true the first time.
func (x *Index) WantOpenAPIV2() bool { return !x.openapi.wanted.Swap(true) }

// claim returns the groups that a member claims. A member that was not reached yet also
// claims the groups that it held before; a withheld member claims only those.
func (m *Member) claim(held map[string]string) ownership.Claim {
	c := ownership.Claim{Server: m.Name, Named: m.Named, Priority: m.Priority, Created: m.Created}
	if m.Document != nil {
		c.Groups = ownership.Claims(m.Named, m.Document.Offered())
	} else {
		var before []string
		for group, server := range held {
			if server == m.Name {
				before = append(before, group)
			}
		}
		c.Groups = slices.Concat(ownership.Claims(m.Named, nil), ownership.Claims(m.Named, before))
		slices.Sort(c.Groups)
		c.Groups = slices.Compact(c.Groups)
	}
	if m.Withheld {
		c.Groups = slices.DeleteFunc(c.Groups, func(g string) bool { return held[g] != m.Name })
	}
	return c
}

// placements returns the groups that are held and whose discovery is known, by name.
func placements(members []Member, owned ownership.Assignment) map[string]placement {
	out := map[string]placement{}
	for i := range members {
		m := &members[i]
		if m.Document == nil {
			continue
		}
		for j := range m.Document.Groups {
			g := &m.Document.Groups[j]
			if owned.Holder[g.Name] == m.Name {
				out[g.Name] = placement{m.Name, place(m.Priority, g.Name, j), g, m.Addresses}
			}
		}
	}
	return out
}

// place returns a group's priority in discovery; higher comes first. It goes by the server's
// priority, then by whether the group is Kubernetes' own, then by the server's order. It
// does not depend on other servers, so it does not change with them.
func place(priority int32, group string, position int) int {
	p := (int(priority) + 20001) * 4 * maxVersions
	if ownership.BuiltIn(group) {
		p += 2 * maxVersions
	}
	return p + maxVersions - position
}

func (p placement) same(q placement) bool {
	return p.server == q.server && p.priority == q.priority && p.group == q.group && slices.Equal(p.addresses, q.addresses)
}

// manager returns the resource manager that lists a group.
func (x *Index) manager(group string) aggregated.ResourceManager {
	if group == "" {
		return x.api
	}
	return x.apis
}

func (x *Index) uninstall(name string, p placement) {
	for _, v := range p.group.Versions {
		x.manager(name).RemoveGroupVersion(metav1.GroupVersion{Group: name, Version: v.Version})
	}
	delete(x.installed, name)
}

func (x *Index) install(name string, old, p placement) {
	m := x.manager(name)
	keep := map[string]bool{}
	for i, v := range p.group.Versions {
		keep[v.Version] = true
		m.AddGroupVersion(name, v)
		m.SetGroupVersionPriority(metav1.GroupVersion{Group: name, Version: v.Version}, p.priority, maxVersions-i)
	}
	if old.group != nil {
		for _, v := range old.group.Versions {
			if !keep[v.Version] {
				m.RemoveGroupVersion(metav1.GroupVersion{Group: name, Version: v.Version})
			}
		}
	}
	x.installed[name] = p
}

// newGroup makes the older forms of a group's discovery.
func newGroup(p placement) *group {
	g := &group{placement: p, versions: map[string]*metav1.APIResourceList{}}
	list, lists, _ := clientdiscovery.SplitGroupsAndResources(apidiscoveryv2.APIGroupDiscoveryList{
		Items: []apidiscoveryv2.APIGroupDiscovery{*p.group},
	})
	g.api = list.Groups[0]
	g.api.ServerAddressByClientCIDRs = p.addresses
	for gv, l := range lists {
		g.versions[gv.Version] = l
	}
	return g
}

// version returns the answer to /version: the core server's, or that of the first member
// that has one.
func version(members []Member, owned ownership.Assignment) json.RawMessage {
	var first json.RawMessage
	for i := range members {
		if d := members[i].Document; d != nil && d.Version != nil {
			if owned.Holder[""] == members[i].Name {
				return d.Version
			}
			if first == nil {
				first = d.Version
			}
		}
	}
	return first
}
