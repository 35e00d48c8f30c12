package conformance

import (
	"context"
	"net/http"
	"net/url"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

func resourceVersionChecks() []check {
	const versions = concepts + "#resource-versions"
	return []check{
		{id: "resourceversion.list", source: versions,
			convention: "a list has a resourceVersion, a decimal number that does not go back", run: checkListVersion},
		{id: "resourceversion.not-older-than", source: versions,
			convention: "a list with resourceVersionMatch=NotOlderThan is at least as new as what is asked", run: checkNotOlderThan},
		{id: "resourceversion.exact", source: versions,
			convention: "a list with resourceVersionMatch=Exact is of that very version, or 410 if that is gone", run: checkExact},
		{id: "resourceversion.too-new", source: versions,
			convention: "a version that does not exist yet is 504, Timeout, not an older list", run: checkTooNew},
		{id: "resourceversion.match-alone", source: versions,
			convention: "resourceVersionMatch without resourceVersion is refused", run: checkMatchAlone},
	}
}

// newest lists little of a resource and returns the list's version. That there
// is none is resourceversion.list's to say.
func (s *session) newest(ctx context.Context, one *sample) (string, error) {
	version, err := s.listVersion(ctx, one)
	if err == nil && version == "" {
		err = unsaid("the list has no resourceVersion")
	}
	return version, err
}

func (s *session) listVersion(ctx context.Context, one *sample) (string, error) {
	a, err := s.client.ask(ctx, request{path: one.path(""), query: url.Values{"limit": {"1"}}})
	if err != nil {
		return "", err
	}
	list, err := a.object(http.StatusOK)
	if err != nil {
		return "", err
	}
	return list.resourceVersion(), nil
}

func checkListVersion(ctx context.Context, s *session) finding {
	return each(s.stored(), func(one *sample) error {
		a := &answer{request: request{path: one.path("")}}
		first, err := s.listVersion(ctx, one)
		if err != nil {
			return err
		}
		if first == "" || first == "0" {
			return a.errorf("metadata.resourceVersion of the list is %q; clients cannot watch from there", first)
		}
		second, err := s.listVersion(ctx, one)
		if err != nil {
			return err
		}
		order, err := resourceversion.CompareResourceVersion(first, second)
		if err != nil {
			return a.errorf("the list is at %q, and then at %q: %w; clients compare them as numbers", first, second, err)
		}
		if order > 0 {
			return a.errorf("the list was at %s, and then at %s: time went back", first, second)
		}
		return nil
	})
}

func checkNotOlderThan(ctx context.Context, s *session) finding {
	return each(s.some(5, "watch"), func(one *sample) error {
		version, err := s.newest(ctx, one)
		if err != nil {
			return err
		}
		a, err := s.client.ask(ctx, request{path: one.path(""), query: url.Values{"resourceVersion": {version}, "resourceVersionMatch": {"NotOlderThan"}, "limit": {"1"}}})
		if err != nil {
			return err
		}
		list, err := a.object(http.StatusOK)
		if err != nil {
			return err
		}
		order, err := resourceversion.CompareResourceVersion(version, list.resourceVersion())
		if err != nil || order > 0 {
			return a.errorf("the list is at %q, which is not %s or newer", list.resourceVersion(), version)
		}
		return nil
	})
}

func checkExact(ctx context.Context, s *session) finding {
	return each(s.some(5, "watch"), func(one *sample) error {
		version, err := s.newest(ctx, one)
		if err != nil {
			return err
		}
		a, err := s.client.ask(ctx, request{path: one.path(""), query: url.Values{"resourceVersion": {version}, "resourceVersionMatch": {"Exact"}, "limit": {"1"}}})
		if err != nil {
			return err
		}
		if a.status == http.StatusGone {
			return a.refused(metav1.StatusReasonExpired, http.StatusGone)
		}
		list, err := a.object(http.StatusOK)
		if err != nil {
			return err
		}
		if list.resourceVersion() != version {
			return a.errorf("the list is at %q", list.resourceVersion())
		}
		return nil
	})
}

func checkTooNew(ctx context.Context, s *session) finding {
	return each(s.some(1, "watch"), func(one *sample) error {
		version, err := s.newest(ctx, one)
		if err != nil {
			return err
		}
		// Three digits more are a thousand times as many writes.
		a, err := s.client.ask(ctx, request{path: one.path(""), query: url.Values{"resourceVersion": {version + "000"}, "resourceVersionMatch": {"NotOlderThan"}, "limit": {"1"}}})
		if err != nil {
			return err
		}
		return a.refused(metav1.StatusReasonTimeout, http.StatusGatewayTimeout)
	})
}

func checkMatchAlone(ctx context.Context, s *session) finding {
	return each(s.some(3), func(one *sample) error {
		a, err := s.client.ask(ctx, request{path: one.path(""), query: url.Values{"resourceVersionMatch": {"NotOlderThan"}, "limit": {"1"}}})
		if err != nil {
			return err
		}
		return a.refused("", http.StatusBadRequest, http.StatusUnprocessableEntity)
	})
}

func paginationChecks() []check {
	const chunks = concepts + "#retrieving-large-results-sets-in-chunks"
	return []check{
		{id: "pagination.limit", source: chunks,
			convention: "a list in pages gives every object once, all at one resourceVersion", run: checkLimit},
		{id: "pagination.bad-continue", source: chunks,
			convention: "a continue token that cannot be read is 400 or 410, not a list", run: checkBadContinue},
	}
}

func checkLimit(ctx context.Context, s *session) finding {
	var some []*sample
	for _, one := range s.samples {
		// More than a page: these take too long to read whole.
		if len(one.items) > 1 && one.list.text("metadata", "continue") == "" {
			some = append(some, one)
		}
	}
	if len(some) == 0 {
		return skip("no resource that may be listed holds from 2 to 20 objects; check again when one does")
	}
	return each(some[:min(5, len(some))], func(one *sample) error {
		// Others may write meanwhile: then the lists before and after differ.
		for range 3 {
			before, err := s.names(ctx, one)
			if err != nil {
				return err
			}
			paged, err := s.pages(ctx, one, (len(before)+1)/2)
			if err != nil {
				return err
			}
			after, err := s.names(ctx, one)
			if err != nil {
				return err
			}
			if !slices.Equal(before, after) {
				continue
			}
			slices.Sort(paged)
			if !slices.Equal(paged, before) {
				a := &answer{request: request{path: one.path("")}}
				return a.errorf("in pages it holds %v, and in one %v", paged, before)
			}
			return nil
		}
		return unsaid("it changes all the time")
	})
}

// names are those of all objects, with their namespaces, in order.
func (s *session) names(ctx context.Context, one *sample) ([]string, error) {
	_, items, err := s.page(ctx, one.path(""), nil)
	names := namesOf(items)
	slices.Sort(names)
	return names, err
}

func namesOf(items []object) []string {
	var names []string
	for _, item := range items {
		names = append(names, item.namespace()+"/"+item.name())
	}
	return names
}

// pages lists in pages of the size, and returns the names of all objects.
func (s *session) pages(ctx context.Context, one *sample, size int) ([]string, error) {
	const most = 50
	var names []string
	version, next := "", ""
	for page := range most {
		query := url.Values{"limit": {itoa(size)}}
		if next != "" {
			query.Set("continue", next)
		}
		a := &answer{request: request{path: one.path(""), query: query}}
		list, items, err := s.page(ctx, one.path(""), query)
		if err != nil {
			return nil, err
		}
		names = append(names, namesOf(items)...)
		next = list.text("metadata", "continue")
		switch {
		case page == 0 && len(items) > size && next == "":
			return nil, unsaid("%s: the server gives all at once; it may", a.request)
		case len(items) > size:
			return nil, a.errorf("the page holds %d objects", len(items))
		case page > 0 && list.resourceVersion() != version:
			return nil, a.errorf("the page is at resourceVersion %q, and the first is at %q", list.resourceVersion(), version)
		case next == "":
			return names, nil
		}
		version = list.resourceVersion()
	}
	return nil, (&answer{request: request{path: one.path("")}}).errorf("pages of %d do not end after %d of them", size, most)
}

func checkBadContinue(ctx context.Context, s *session) finding {
	return each(s.some(3), func(one *sample) error {
		a, err := s.client.ask(ctx, request{path: one.path(""), query: url.Values{"limit": {"1"}, "continue": {"xb-is-no-token"}}})
		if err != nil {
			return err
		}
		return a.refused("", http.StatusBadRequest, http.StatusGone)
	})
}
