// Package survey finds out what a server serves: its discovery, what its OpenAPI
// says, and a sample of its resources. It never changes anything on the server,
// and judges nothing.
package survey

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/xbernetes/xbernetes/internal/gateway/conformance/ask"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/check"
	"github.com/xbernetes/xbernetes/internal/weight"
)

// Settings say how a server is surveyed.
type Settings struct {
	// Mark is that of the run.
	Mark Mark
	// Resources is how many resources are sampled.
	Resources int
	// Settle is how long a discovery that changes is given to come to rest.
	Settle time.Duration
	// OpenAPIPath is where OpenAPI v2 is served, below the server's URL.
	OpenAPIPath string
}

// A Survey is what is known of a server. It is for one goroutine.
type Survey struct {
	Settings Settings
	// Discovery is never changed, but replaced as a whole by Rediscover.
	*Discovery
	// Samples are the resources that are looked at closely. Sample fills it.
	Samples []*Sample

	client  *ask.Client
	openapi *OpenAPI // read after Discovery; nil until somebody asks for it
	// held is what may still be decoded of what is held until the run ends.
	held weight.Budget
}

// mostHeld bounds what is decoded and held until the run ends.
const mostHeld = 64 << 20

// New reads the discovery of the server. The error is that no server answers
// there, or that it admits nobody.
func New(ctx context.Context, client *ask.Client, settings Settings) (*Survey, error) {
	s := &Survey{Settings: settings, client: client}
	return s, s.Rediscover(ctx)
}

// Client asks the server.
func (s *Survey) Client() *ask.Client { return s.client }

// Rediscover reads the discovery again, and forgets what OpenAPI said.
func (s *Survey) Rediscover(ctx context.Context) error {
	s.held = weight.Budget{Left: mostHeld}
	d, err := discover(ctx, s.client, &s.held)
	if d != nil {
		s.Discovery, s.openapi = d, nil
	}
	return err
}

// A Sample is a resource that may be listed, and what a first list of it said.
type Sample struct {
	Resource
	// Items are the first 20 objects; none if the list cannot be read.
	Items []ask.Object
	// Whole reports whether the list has no more than that.
	Whole bool
}

// firstPage is how many objects of a resource are sampled.
const firstPage = "20"

// Sample lists some resources: first, if there is such a resource, and then
// those that hold something, with one of every group before a second of any.
func (s *Survey) Sample(ctx context.Context, first *Resource) {
	var found []*Sample
	for _, r := range candidates(s.Resources, first) {
		if len(found) >= 4*s.Settings.Resources {
			break
		}
		if one := s.sample(ctx, r); one != nil {
			found = append(found, one)
		}
	}
	slices.SortStableFunc(found, func(a, b *Sample) int { return cmp.Compare(min(len(b.Items), 1), min(len(a.Items), 1)) })
	s.Samples = found[:min(s.Settings.Resources, len(found))]
}

// candidates are the resources that may be sampled, in the order of preference.
func candidates(all []Resource, first *Resource) []Resource {
	ordered := InTurns(all)
	if first != nil {
		ordered = append([]Resource{*first}, slices.DeleteFunc(ordered, func(r Resource) bool { return r.String() == first.String() })...)
	}
	return slices.DeleteFunc(ordered, func(r Resource) bool {
		// Secrets are nobody's business, and events vanish while they are read.
		secret := r.GroupVersion.Group == "" && r.Name == "secrets"
		return secret || r.Name == "events" || !r.Can("list", "get")
	})
}

// sample lists a resource; nil if the caller may not list it, or if it holds
// more than may be kept.
func (s *Survey) sample(ctx context.Context, r Resource) *Sample {
	one := &Sample{Resource: r}
	a, err := s.client.Get(ctx, ask.Request{Path: r.Path(""), Query: url.Values{"limit": {firstPage}}})
	switch {
	case err != nil:
		return one // the checks of lists say what is wrong
	case a.Forbidden():
		return nil
	case a.Status != http.StatusOK:
		return one
	case s.held.Spend(a.Body) != nil:
		return nil
	}
	if list, err := a.Object(http.StatusOK); err == nil {
		one.Items, _ = list.Items()
		one.Whole = list.Text("metadata", "continue") == ""
	}
	return one
}

// Some are the samples that have all of the verbs, at most n of them.
func (s *Survey) Some(n int, verbs ...string) []*Sample {
	var some []*Sample
	for _, one := range s.Samples {
		if one.Can(verbs...) && len(some) < n {
			some = append(some, one)
		}
	}
	return some
}

// Filled are the samples that hold an object and have all of the verbs, at most
// n of them. The error, if there are none, is a check.Skipped.
func (s *Survey) Filled(n int, verbs ...string) ([]*Sample, error) {
	var some []*Sample
	for _, one := range s.Some(len(s.Samples), verbs...) {
		if len(one.Items) > 0 && len(some) < n {
			some = append(some, one)
		}
	}
	if len(some) == 0 {
		return nil, check.Skipf("no resource that may be listed holds an object; check again when one does, or with --write")
	}
	return some, nil
}

// Missing reports whether an object that was listed is not there any more.
func (s *Survey) Missing(ctx context.Context, r Resource, item ask.Object) bool {
	_, items, err := s.client.List(ctx, ask.Request{Path: r.Path(item.Namespace()), Query: url.Values{"fieldSelector": {"metadata.name=" + item.Name()}}})
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(items, func(i ask.Object) bool { return i.UID() == item.UID() })
}

// ListVersion lists little of a resource and returns the list's resourceVersion;
// empty if it has none.
func ListVersion(ctx context.Context, client *ask.Client, r Resource) (string, error) {
	list, err := client.Object(ctx, ask.Request{Path: r.Path(""), Query: url.Values{"limit": {"1"}}})
	if err != nil {
		return "", err
	}
	return list.ResourceVersion(), nil
}

// Newest is ListVersion, and a check.Skipped if the list has none, because the
// check resourceversion.list reports that.
func Newest(ctx context.Context, client *ask.Client, r Resource) (string, error) {
	version, err := ListVersion(ctx, client, r)
	if err == nil && version == "" {
		err = check.Skipf("the list has no resourceVersion")
	}
	return version, err
}
