package discovery

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/endpoints"
	clientdiscovery "k8s.io/client-go/discovery"

	"github.com/xbernetes/xbernetes/internal/weight"

	"github.com/xbernetes/xbernetes/internal/gateway/discovery/ownership"
)

// Bounds of what one server can make the gateway hold.
const (
	maxDiscovery = 8 << 20  // bytes of one discovery document
	maxOpenAPI   = 24 << 20 // bytes of an OpenAPI v2 document
	maxVersions  = 2000     // group versions of a server

	// maxDecoded is what all discovery documents together may weigh once they are
	// decoded, in bytes as package weight counts them. kube-apiserver's weigh 0.4 MiB.
	maxDecoded = 32 << 20
)

// Document is one server's discovery. It does not change once it is made.
type Document struct {
	// Groups are the groups that the server offers, in its order; the core group is "".
	Groups []apidiscoveryv2.APIGroupDiscovery
	// Version is the server's answer at /version; nil if it has none.
	Version json.RawMessage

	api, apis page // the documents that Groups were made of
}

// page is a document as it was last fetched.
type page struct {
	etag   string
	groups []apidiscoveryv2.APIGroupDiscovery
}

// Offered returns the names of the groups; never nil.
func (d *Document) Offered() []string {
	names := make([]string, 0, len(d.Groups))
	for i := range d.Groups {
		names = append(names, d.Groups[i].Name)
	}
	return names
}

// Fetch asks a server for its groups, resources and version. previous may be nil; if it
// still holds, Fetch returns previous itself. Fetch uses aggregated discovery, and the older
// form for servers that do not have it.
func Fetch(ctx context.Context, rt http.RoundTripper, previous *Document) (*Document, error) {
	before := cmp.Or(previous, &Document{})
	next := &Document{}
	var err error
	f := &fetcher{rt, weight.Budget{Left: maxDecoded}}
	if next.apis, err = f.page(ctx, "/apis", before.apis); err != nil {
		if refused := (*statusError)(nil); errors.As(err, &refused) && (refused.code == http.StatusUnauthorized || refused.code == http.StatusForbidden) {
			err = fmt.Errorf("%w; the gateway asks as itself: give it credentials that may read discovery, by identity.credentials", err)
		}
		return nil, err
	}
	next.api, err = f.page(ctx, "/api", before.api)
	switch gone := (*statusError)(nil); {
	case errors.As(err, &gone) && (gone.code == http.StatusNotFound || gone.code == http.StatusForbidden):
		next.api = page{} // a server need not have a core group
	case err != nil:
		return nil, err
	}
	if version, err := get(ctx, rt, request{path: "/version", limit: 16 << 10}); err == nil && json.Valid(version.body) {
		next.Version = version.body
	} else {
		next.Version = before.Version
	}
	if previous != nil && next.apis.same(before.apis) && next.api.same(before.api) && bytes.Equal(next.Version, before.Version) {
		return previous, nil
	}
	next.Groups = slices.Concat(next.api.groups, next.apis.groups)
	return next, check(next.Groups)
}

// same says whether two pages are the same, by the server's ETag.
func (p page) same(q page) bool {
	return len(p.groups) == 0 && len(q.groups) == 0 || p.etag != "" && p.etag == q.etag
}

const acceptAggregated = clientdiscovery.AcceptV2 + "," + clientdiscovery.AcceptV1

// fetcher fetches the discovery of one server, once.
type fetcher struct {
	rt     http.RoundTripper
	budget weight.Budget // of all its documents
}

// decode reads an answer into what v points to, if the budget allows it.
func (f *fetcher) decode(path string, body []byte, v any) error {
	err := f.budget.Spend(body)
	if err == nil {
		err = json.Unmarshal(body, v)
	}
	if err != nil {
		return fmt.Errorf("GET %s: read discovery: %w", path, err)
	}
	return nil
}

// page fetches /api or /apis, and the documents to which it leads.
func (f *fetcher) page(ctx context.Context, path string, before page) (page, error) {
	a, err := get(ctx, f.rt, request{path: path, accept: acceptAggregated, etag: before.etag, limit: maxDiscovery})
	if err != nil {
		return page{}, err
	}
	if a.unchanged {
		return before, nil
	}
	var kind metav1.TypeMeta
	if err := json.Unmarshal(a.body, &kind); err != nil {
		return page{}, fmt.Errorf("GET %s: the answer is no JSON object (%w): is the URL that of a Kubernetes API server?", path, err)
	}
	switch kind.Kind {
	case "APIGroupDiscoveryList":
		var list apidiscoveryv2.APIGroupDiscoveryList
		if err := f.decode(path, a.body, &list); err != nil {
			return page{}, err
		}
		for i := range list.Items {
			// Only the name is used, and the rest may be large.
			list.Items[i].ObjectMeta = metav1.ObjectMeta{Name: list.Items[i].Name}
		}
		return page{etag: a.etag, groups: list.Items}, nil
	case "APIGroupList":
		var list metav1.APIGroupList
		if err := f.decode(path, a.body, &list); err != nil {
			return page{}, err
		}
		groups, err := f.groups(ctx, list.Groups)
		return page{groups: groups}, err
	case "APIVersions":
		var versions metav1.APIVersions
		if err := f.decode(path, a.body, &versions); err != nil {
			return page{}, err
		}
		core := metav1.APIGroup{}
		for _, v := range versions.Versions {
			core.Versions = append(core.Versions, metav1.GroupVersionForDiscovery{GroupVersion: v, Version: v})
		}
		groups, err := f.groups(ctx, []metav1.APIGroup{core})
		return page{groups: groups}, err
	default:
		return page{}, fmt.Errorf("GET %s: the answer is of kind %q, not a discovery document: is the URL that of a Kubernetes API server?", path, kind.Kind)
	}
}

// groups asks a server that has no aggregated discovery for the resources of
// each group version.
func (f *fetcher) groups(ctx context.Context, groups []metav1.APIGroup) ([]apidiscoveryv2.APIGroupDiscovery, error) {
	var out []apidiscoveryv2.APIGroupDiscovery
	asked := 0
	for _, g := range groups {
		group := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.Name}}
		for _, v := range g.Versions {
			if asked++; asked > maxVersions {
				return nil, fmt.Errorf("the server lists more than %d group versions: the gateway takes no more of one server", maxVersions)
			}
			path := versionPath(g.Name, v.Version)
			a, err := get(ctx, f.rt, request{path: path, accept: clientdiscovery.AcceptV1, limit: maxDiscovery})
			if err != nil {
				return nil, err
			}
			var list metav1.APIResourceList
			if err := f.decode(path, a.body, &list); err != nil {
				return nil, err
			}
			resources, err := endpoints.ConvertGroupVersionIntoToDiscovery(list.APIResources)
			if err != nil {
				return nil, fmt.Errorf("GET %s: %w", path, err)
			}
			group.Versions = append(group.Versions, apidiscoveryv2.APIVersionDiscovery{
				Version: v.Version, Resources: resources, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
			})
		}
		out = append(out, group)
	}
	return out, nil
}

func versionPath(group, version string) string {
	if group == "" {
		return "/api/" + version
	}
	return "/apis/" + group + "/" + version
}

// check refuses a document with invalid names, which could make a path lead elsewhere, and
// mends resources on which old clients fail.
func check(groups []apidiscoveryv2.APIGroupDiscovery) error {
	versions := 0
	seen := map[string]bool{}
	for i := range groups {
		g := &groups[i]
		if seen[g.Name] {
			return fmt.Errorf("discovery lists %s twice", ownership.Title(g.Name))
		}
		seen[g.Name] = true
		if g.Name != "" && len(validation.IsDNS1123Subdomain(g.Name)) > 0 {
			return fmt.Errorf("discovery lists a group that is no DNS name: %.100q", g.Name)
		}
		if versions += len(g.Versions); versions > maxVersions {
			return fmt.Errorf("discovery lists more than %d group versions: the gateway takes no more of one server", maxVersions)
		}
		for j := range g.Versions {
			v := &g.Versions[j]
			if len(validation.IsDNS1035Label(v.Version)) > 0 {
				return fmt.Errorf("discovery of %s lists a version that is no DNS label: %.100q", ownership.Title(g.Name), v.Version)
			}
			mendKinds(v.Resources)
		}
	}
	return nil
}

// mendKinds gives each resource a kind: client-go 0.26.0 to 0.26.3 panics without.
func mendKinds(resources []apidiscoveryv2.APIResourceDiscovery) {
	for i := range resources {
		if resources[i].ResponseKind == nil {
			resources[i].ResponseKind = &metav1.GroupVersionKind{}
		}
		for j := range resources[i].Subresources {
			if resources[i].Subresources[j].ResponseKind == nil {
				resources[i].Subresources[j].ResponseKind = &metav1.GroupVersionKind{}
			}
		}
	}
}

// request is a GET below a server's base.
type request struct {
	path, query, accept, etag string
	limit                     int64
}

// answer is the answer to a request.
type answer struct {
	body      []byte
	etag      string
	unchanged bool
}

// statusError is an answer that is neither 200 nor 304.
type statusError struct {
	path string
	code int
	text string
}

func (e *statusError) Error() string {
	if e.code >= 300 && e.code < 400 {
		return fmt.Sprintf("GET %s: the server redirects (%d), which the gateway does not follow: register the URL that it leads to", e.path, e.code)
	}
	return fmt.Sprintf("GET %s: %d %s", e.path, e.code, e.text)
}

func get(ctx context.Context, rt http.RoundTripper, q request) (answer, error) {
	r := (&http.Request{
		Method: http.MethodGet,
		URL:    &url.URL{Path: q.path, RawQuery: q.query},
		Header: http.Header{"Accept": {cmp.Or(q.accept, "application/json")}},
	}).WithContext(ctx)
	if q.etag != "" {
		r.Header.Set("If-None-Match", q.etag)
	}
	resp, err := rt.RoundTrip(r)
	if err != nil {
		// The way to a server makes a plain "404 page not found", which is all
		// that many say, an error with the answer's code.
		if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Code >= 400 && status.Status().Code < 500 {
			return answer{}, &statusError{q.path, int(status.Status().Code), status.Status().Message}
		}
		return answer{}, fmt.Errorf("GET %s: %w", q.path, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotModified && q.etag != "" {
		return answer{etag: q.etag, unchanged: true}, nil
	}
	if resp.ContentLength > q.limit {
		return answer{}, tooLarge(q)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, q.limit+1))
	if err != nil {
		return answer{}, fmt.Errorf("GET %s: %w", q.path, err)
	}
	if int64(len(body)) > q.limit {
		return answer{}, tooLarge(q)
	}
	if resp.StatusCode != http.StatusOK {
		return answer{}, &statusError{q.path, resp.StatusCode, reason(body)}
	}
	if t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); t != "" && t != "application/json" && t != "text/plain" {
		// kube-apiserver serves the root of OpenAPI v3 as text/plain.
		return answer{}, fmt.Errorf("GET %s: the answer is %.60q, not JSON: is the URL that of a Kubernetes API server?", q.path, t)
	}
	return answer{body: body, etag: resp.Header.Get("Etag")}, nil
}

func tooLarge(q request) error {
	return fmt.Errorf("GET %s: the answer is larger than %d MiB, which is more than the gateway takes of one server", q.path, q.limit>>20)
}

// reason returns the message of a Status, or the beginning of a body that is no Status.
func reason(body []byte) string {
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Message != "" {
		return fmt.Sprintf("%.300s", status.Message)
	}
	return fmt.Sprintf("%.80q", body)
}
