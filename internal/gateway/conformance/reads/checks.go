// Package reads checks how a server lists, reads and watches objects, and how it
// refuses to. It never changes anything on the server.
package reads

import (
	"context"
	"math"
	"net/url"

	"github.com/xbernetes/xbernetes/internal/gateway/conformance/ask"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/check"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/survey"
)

// Checks are all of this package, in the order in which they run.
func Checks() []check.Check[*survey.Survey] {
	const (
		ofStatus = check.Conventions + "#response-status-kind"
		versions = check.Concepts + "#resource-versions"
		chunks   = check.Concepts + "#retrieving-large-results-sets-in-chunks"
		tables   = check.Concepts + "#receiving-resources-as-tables"
		watches  = check.Concepts + "#efficient-detection-of-changes"
	)
	return []check.Check[*survey.Survey]{
		{ID: "list.kind", Source: check.Conventions + "#types-kinds", Run: each(some(all), checkListKind),
			Convention: "a list has a kind that ends in List, the group version that was asked, metadata and an array items"},
		{ID: "list.items", Source: check.Conventions + "#metadata", Run: each(filled(all, "watch"), checkListItems),
			Convention: "every object has name, uid, resourceVersion and creationTimestamp, and a namespace if and only if its kind is namespaced"},
		{ID: "list.selectors", Source: check.Concepts, Run: each(filled(5), checkSelectors),
			Convention: "label and field selectors leave out what they do not match"},
		{ID: "get.kind", Source: check.Conventions + "#types-kinds", Run: each(filled(all), checkGet),
			Convention: "an object can be read by its name, and has the kind that discovery says"},

		{ID: "status.not-found", Source: ofStatus, Run: each(some(all), checkNotFound),
			Convention: "a read of an object that does not exist is answered with a Status: 404, NotFound, its name in details"},
		{ID: "status.bad-request", Source: ofStatus, Run: each(some(3), checkBadRequest),
			Convention: "a selector that cannot be parsed is answered with a Status: 400, BadRequest"},
		{ID: "status.not-acceptable", Source: check.Concepts + "#alternate-representations-of-resources", Run: each(some(3), checkNotAcceptable),
			Convention: "a media type that is not offered is answered with a Status: 406, NotAcceptable"},
		{ID: "status.unknown-path", Source: check.Conventions + "#http-status-codes", Run: each(some(3), checkUnknownPath),
			Convention: "a request for a resource that does not exist is answered with 404"},

		{ID: "resourceversion.list", Source: versions, Run: each(some(all, "watch"), checkListVersion),
			Convention: "a list has a resourceVersion, a decimal number that does not go back"},
		{ID: "resourceversion.not-older-than", Source: versions, Run: each(some(5, "watch"), checkNotOlderThan),
			Convention: "a list with resourceVersionMatch=NotOlderThan is at least as new as the given version"},
		{ID: "resourceversion.exact", Source: versions, Run: each(some(5, "watch"), checkExact),
			Convention: "a list with resourceVersionMatch=Exact is of exactly the given version, or 410 if that is gone"},
		{ID: "resourceversion.too-new", Source: versions, Run: each(some(1, "watch"), checkTooNew),
			Convention: "a list at a version that does not exist yet is answered with 504, Timeout, and not with an older list"},
		{ID: "resourceversion.match-alone", Source: versions, Run: each(some(3), checkMatchAlone),
			Convention: "resourceVersionMatch without resourceVersion is refused"},

		{ID: "pagination.limit", Source: chunks, Run: each(several, checkLimit),
			Convention: "a list in pages gives every object once, all at one resourceVersion"},
		{ID: "pagination.bad-continue", Source: chunks, Run: each(some(3), checkBadContinue),
			Convention: "a continue token that cannot be read is answered with 400 or 410, and not with a list"},

		{ID: "table.shape", Source: tables, Run: each(some(all), checkTable),
			Convention: "a list as a Table has columns with name and type, and rows with a cell for each"},
		{ID: "table.include-object", Source: tables, Run: each(filled(3), checkIncludeObject),
			Convention: "the rows of a Table hold the objects' metadata, and nothing with includeObject=None"},
		{ID: "table.metadata-only", Source: check.Concepts + "#alternate-representations-of-resources", Run: each(filled(3), checkMetadataOnly),
			Convention: "a list as PartialObjectMetadataList holds metadata and nothing else"},

		{ID: "watch.initial", Source: watches, Run: each(filled(3, "watch"), checkInitial),
			Convention: "a watch from resourceVersion 0 begins with the objects that exist, as events ADDED"},
		{ID: "watch.timeout", Source: watches, Run: each(some(1, "watch"), checkWatchTimeout),
			Convention: "a watch ends by itself once its timeoutSeconds are over"},
		{ID: "watch.bookmarks", Source: check.Concepts + "#watch-bookmarks", Run: each(some(2, "watch"), checkBookmarks),
			Convention: "a bookmark is of the watched kind and has a resourceVersion; with sendInitialEvents, a bookmark marks the end of the initial events"},
		{ID: "watch.expired", Source: check.Concepts + "#410-gone-responses", Run: each(some(1, "watch"), checkExpired),
			Convention: "a watch from a version that is gone is answered with 410, Expired, as a response or as an event ERROR"},
	}
}

// A choice says of which resources a check asks. The error, if there are none to
// ask of, is a check.Skipped.
type choice func(*survey.Survey) ([]*survey.Sample, error)

const all = math.MaxInt

// some are at most n resources that have all of the verbs. Resources without
// watch are not stored but made up for each request, as componentstatuses are.
func some(n int, verbs ...string) choice {
	return func(s *survey.Survey) ([]*survey.Sample, error) { return s.Some(n, verbs...), nil }
}

// filled are at most n resources that hold an object and have all of the verbs.
func filled(n int, verbs ...string) choice {
	return func(s *survey.Survey) ([]*survey.Sample, error) { return s.Filled(n, verbs...) }
}

// each asks the same of every chosen resource.
func each(choose choice, ask func(context.Context, *survey.Survey, *survey.Sample) error) func(context.Context, *survey.Survey) check.Finding {
	return func(ctx context.Context, s *survey.Survey) check.Finding {
		chosen, err := choose(s)
		if err != nil {
			return check.Finding{Err: err}
		}
		return check.Each(chosen, func(one *survey.Sample) error { return ask(ctx, s, one) })
	}
}

// listOf asks for a list of all objects of a resource. Parameters are pairs of
// name and value.
func listOf(one *survey.Sample, parameters ...string) ask.Request {
	query := url.Values{}
	for i := 0; i < len(parameters); i += 2 {
		query.Set(parameters[i], parameters[i+1])
	}
	return ask.Request{Path: one.Path(""), Query: query}
}
