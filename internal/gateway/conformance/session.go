package conformance

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/xbernetes/xbernetes/internal/weight"
)

// A session is one run: what is known of the server, and what was made on it.
// One goroutine uses it.
type session struct {
	client  *client
	options Options
	id      string // of this run, in the names of what it makes

	version   string
	groups    []metav1.APIGroup // core has an empty name
	lists     []*metav1.APIResourceList
	badGroups []error    // what is wrong with the lists of groups
	badLists  []error    // what is wrong with the lists of resources
	resources []resource // of the preferred versions, without subresources
	samples   []*sample  // those that are looked at closely

	openapi *description // once it was asked for
	trial   *target      // what may be created by dry run; nil: nothing
	target  *target      // what may be created; nil: nothing
	why     string       // there is no target
	made    []made       // what may have been created, and may be there still
}

func itoa(n int) string { return strconv.Itoa(n) }

func newRunID() string {
	b := make([]byte, 5)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// A resource is one that the server has in its discovery.
type resource struct {
	gv           schema.GroupVersion
	name         string
	kind         string
	namespaced   bool
	verbs        []string
	subresources []string
}

func (r resource) String() string {
	if r.gv.Group == "" {
		return r.name + "." + r.gv.Version
	}
	return r.name + "." + r.gv.Version + "." + r.gv.Group
}

func (r resource) can(verbs ...string) bool {
	return !slices.ContainsFunc(verbs, func(v string) bool { return !slices.Contains(r.verbs, v) })
}

// path is that of the collection, in a namespace or in all.
func (r resource) path(namespace string) string {
	p := versionPath(r.gv)
	if r.namespaced && namespace != "" {
		p += "/namespaces/" + url.PathEscape(namespace)
	}
	return p + "/" + r.name
}

func (r resource) objectPath(namespace, name string) string {
	return r.path(namespace) + "/" + url.PathEscape(name)
}

func versionPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.Group + "/" + gv.Version
}

// A sample is a resource that may be listed, and what a first list of it said.
type sample struct {
	resource
	list  object
	items []object
}

// look lists some resources, those first that hold something, one of every
// group before a second of any.
func (s *session) look(ctx context.Context) {
	most := s.options.Resources
	var found []*sample
	candidates := inTurns(s.resources)
	if s.target != nil {
		candidates = append([]resource{s.target.resource}, slices.DeleteFunc(candidates, func(r resource) bool { return r.String() == s.target.String() })...)
	}
	for _, r := range candidates {
		// Secrets are nobody's business, and events go while one looks.
		if !r.can("list", "get") || r.gv.Group == "" && r.name == "secrets" || r.name == "events" {
			continue
		}
		if len(found) >= 4*most {
			break
		}
		a, err := s.client.ask(ctx, request{path: r.path(""), query: url.Values{"limit": {"20"}}})
		if err != nil || a.status != http.StatusOK {
			if err == nil && a.forbidden() {
				continue
			}
			found = append(found, &sample{resource: r}) // it will be said why
			continue
		}
		one := &sample{resource: r}
		if err = s.client.held.Spend(a.body); err != nil {
			continue // it would be held until the end of the run
		}
		if one.list, err = a.object(http.StatusOK); err == nil {
			one.items, _ = one.list.items() // the check of lists looks again
		}
		found = append(found, one)
	}
	slices.SortStableFunc(found, func(a, b *sample) int { return cmp.Compare(min(len(b.items), 1), min(len(a.items), 1)) })
	s.samples = found[:min(most, len(found))]
}

// inTurns orders resources so that each group has its turn.
func inTurns(all []resource) []resource {
	var groups []string
	byGroup := map[string][]resource{}
	for _, r := range all {
		if byGroup[r.gv.Group] == nil {
			groups = append(groups, r.gv.Group)
		}
		byGroup[r.gv.Group] = append(byGroup[r.gv.Group], r)
	}
	var ordered []resource
	for turn := 0; len(ordered) < len(all); turn++ {
		for _, g := range groups {
			if turn < len(byGroup[g]) {
				ordered = append(ordered, byGroup[g][turn])
			}
		}
	}
	return ordered
}

// some are the samples that can do all of the verbs, at most n of them.
func (s *session) some(n int, verbs ...string) []*sample {
	var some []*sample
	for _, one := range s.samples {
		if one.can(verbs...) && len(some) < n {
			some = append(some, one)
		}
	}
	return some
}

// stored are the samples that can be watched: what cannot is not kept anywhere,
// but made when it is asked for, as componentstatuses are.
func (s *session) stored() []*sample { return s.some(len(s.samples), "watch") }

// filled are the samples that hold something.
func (s *session) filled(n int, verbs ...string) []*sample {
	var some []*sample
	for _, one := range s.some(len(s.samples), verbs...) {
		if len(one.items) > 0 && len(some) < n {
			some = append(some, one)
		}
	}
	return some
}

// eachFilled is each, over samples that hold something.
func (s *session) eachFilled(n int, ask func(*sample) error, verbs ...string) finding {
	some := s.filled(n, verbs...)
	if len(some) == 0 {
		return skip("no resource that may be listed holds an object; check again when one does, or with --write")
	}
	return each(some, ask)
}

// page reads a list, or a page of it.
func (s *session) page(ctx context.Context, path string, query url.Values) (object, []object, error) {
	a, err := s.client.ask(ctx, request{path: path, query: query})
	if err != nil {
		return nil, nil, err
	}
	list, err := a.object(http.StatusOK)
	if err != nil {
		return nil, nil, err
	}
	items, err := list.items()
	if err != nil {
		return nil, nil, a.errorf("%w", err)
	}
	return list, items, nil
}

// discover reads the legacy discovery, which every server has. An error means
// that there is no server there.
func (s *session) discover(ctx context.Context) error {
	a, err := s.client.ask(ctx, request{path: "/apis"})
	if err != nil {
		return err
	}
	s.groups, s.lists, s.resources, s.badGroups, s.badLists, s.openapi = nil, nil, nil, nil, nil, nil
	s.client.held = weight.Budget{Left: mostHeld}
	switch a.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("it answered %d to %s; give credentials that may read the discovery (system:discovery)", a.status, a.request)
	}
	var version struct{ GitVersion string }
	if _, err := s.client.get(ctx, "/version", nil, &version); err == nil {
		s.version = version.GitVersion
	}
	for _, err := range []error{s.discoverCore(ctx), s.discoverGroups(a)} {
		if err != nil {
			s.badGroups = append(s.badGroups, err)
		}
	}
	s.discoverResources(ctx)
	return ctx.Err()
}

func (s *session) discoverCore(ctx context.Context) error {
	a, err := s.client.ask(ctx, request{path: "/api"})
	if err != nil {
		return err
	}
	if a.status == http.StatusNotFound {
		return nil // no core group: nothing wrong with that
	}
	var core metav1.APIVersions
	if err := a.json(http.StatusOK, &core); err != nil {
		return err
	}
	if core.Kind != "APIVersions" {
		return a.errorf("want kind APIVersions, got %q", core.Kind)
	}
	if len(core.Versions) == 0 {
		return nil // so says an aggregated server that has no core group
	}
	group := metav1.APIGroup{}
	for _, v := range core.Versions {
		group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: v, Version: v})
	}
	group.PreferredVersion = group.Versions[0]
	s.groups = append(s.groups, group)
	return nil
}

func (s *session) discoverGroups(a *answer) error {
	var list metav1.APIGroupList
	if err := s.client.held.Spend(a.body); err != nil {
		return a.errorf("%w", err)
	}
	if err := a.json(http.StatusOK, &list); err != nil {
		return err
	}
	// Servers made with k8s.io/apiserver leave apiVersion out.
	if list.Kind != "APIGroupList" || list.APIVersion != "v1" && list.APIVersion != "" {
		return a.errorf("want an APIGroupList of v1, got a %q of %q", list.Kind, list.APIVersion)
	}
	s.groups = append(s.groups, list.Groups...)
	return nil
}

// mostVersions bounds how many group versions are looked at.
const mostVersions = 2000

// discoverResources reads what each group version holds.
func (s *session) discoverResources(ctx context.Context) {
	for _, g := range s.groups {
		for _, v := range g.Versions {
			if len(s.lists)+len(s.badLists) >= mostVersions {
				return
			}
			gv := schema.GroupVersion{Group: g.Name, Version: v.Version}
			var list metav1.APIResourceList
			a, err := s.client.hold(ctx, versionPath(gv), &list)
			if err == nil && (list.Kind != "APIResourceList" || list.GroupVersion != gv.String()) {
				err = a.errorf("want an APIResourceList of %s, got a %q of %q", gv, list.Kind, list.GroupVersion)
			}
			if err != nil {
				s.badLists = append(s.badLists, err)
				continue
			}
			s.lists = append(s.lists, &list)
			if v.Version == g.PreferredVersion.Version {
				s.resources = append(s.resources, resourcesOf(gv, &list)...)
			}
		}
	}
}

func resourcesOf(gv schema.GroupVersion, list *metav1.APIResourceList) []resource {
	var all []resource
	for _, r := range list.APIResources {
		if !strings.Contains(r.Name, "/") {
			all = append(all, resource{gv: gv, name: r.Name, kind: r.Kind, namespaced: r.Namespaced, verbs: r.Verbs})
		}
	}
	for _, r := range list.APIResources {
		parent, sub, ok := strings.Cut(r.Name, "/")
		if i := slices.IndexFunc(all, func(r resource) bool { return r.name == parent }); ok && i >= 0 {
			all[i].subresources = append(all[i].subresources, sub)
		}
	}
	return all
}
