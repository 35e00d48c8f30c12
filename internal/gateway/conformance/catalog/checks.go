// Package catalog checks what a server says of itself: its discovery, its
// OpenAPI and its version. It never looks at an object.
package catalog

import (
	"context"
	"time"

	"github.com/xbernetes/xbernetes/internal/gateway/conformance/ask"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/check"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/survey"
)

// Checks are all of this package, in the order in which they run.
func Checks() []check.Check[*survey.Survey] {
	const ofDiscovery = check.APIPage + "#discovery-api"
	return []check.Check[*survey.Survey]{
		{ID: "discovery.groups", Source: ofDiscovery, Run: steady(checkGroups),
			Convention: "/api and /apis list the group versions, each once, the preferred one among them"},
		{ID: "discovery.group", Source: ofDiscovery, Run: steady(checkGroup),
			Convention: "/apis/GROUP says the same of a group as /apis"},
		{ID: "discovery.resources", Source: ofDiscovery, Run: steady(checkResources),
			Convention: "each group version lists its resources, each once, with kind and verbs"},
		{ID: "discovery.names", Source: check.Conventions + "#naming-conventions", Run: once(checkNames),
			Convention: "groups are DNS names, versions like v1 or v2beta1, resources in lower case, kinds in CamelCase"},
		{ID: "discovery.aggregated", Source: check.APIPage + "#aggregated-discovery", Run: steady(checkAggregated),
			Convention: "aggregated discovery v2 says the same as the discovery by group version"},
		{ID: "discovery.etag", Source: check.APIPage + "#aggregated-discovery", Run: once(checkETag),
			Convention: "aggregated discovery has an ETag, and a request with the current ETag is answered with 304"},
		{ID: "discovery.version", Source: check.APIPage, Run: once(checkVersion),
			Convention: "/version says major, minor and gitVersion"},

		{ID: "openapi.v3", Source: check.APIPage + "#openapi-v3", Run: steady(checkOpenAPIv3),
			Convention: "OpenAPI v3 describes every group version that is served, with its paths and kinds"},
		{ID: "openapi.v2", Source: check.APIPage + "#openapi-v2", Run: steady(checkOpenAPIv2),
			Convention: "OpenAPI v2 describes every resource that is served, with its kind"},
		{ID: "dry-run.declared", Source: check.Concepts + "#dry-run", Run: once(createDeclares("dryRun")),
			Convention: "OpenAPI v3 declares the query parameter dryRun for every create"},
		{ID: "field-validation.declared", Source: check.Concepts + "#field-validation", Run: once(createDeclares("fieldValidation")),
			Convention: "OpenAPI v3 declares the query parameter fieldValidation for every create"},
		{ID: "apply.declared", Source: check.ApplyPage, Run: once(patchDeclares(ask.ApplyPatch)),
			Convention: "OpenAPI v3 declares " + ask.ApplyPatch + " for every patch"},
		{ID: "openapi.document", Source: check.APIPage + "#api-specification", Run: once(checkDocuments),
			Convention: "the documents that /openapi/v3 lists are of OpenAPI 3"},
	}
}

type run = func(context.Context, *survey.Survey) error

// once makes a check whose first result counts.
func once(run run) func(context.Context, *survey.Survey) check.Finding {
	return func(ctx context.Context, s *survey.Survey) check.Finding { return check.Finding{Err: run(ctx, s)} }
}

// steady makes a check that fails only if it does so three times: it compares
// documents that are read one after the other, and the server may change between.
func steady(run run) func(context.Context, *survey.Survey) check.Finding {
	return once(func(ctx context.Context, s *survey.Survey) error {
		err := run(ctx, s)
		for range 2 {
			if err == nil || check.IsSkipped(err) {
				return err
			}
			select {
			case <-ctx.Done():
				return err
			case <-time.After(s.Settings.Settle):
			}
			if err := s.Rediscover(ctx); err != nil {
				return err
			}
			err = run(ctx, s)
		}
		return err
	})
}
