// Package conformance checks whether an API server follows the Kubernetes API
// conventions. It never changes anything on a server that it checks, unless it
// is told that it may, and then only objects that it made itself.
//
// A new check is a line in Checks of one of the packages catalog, reads and
// writes, and a function beside it. The tests here then want a line for it in
// docs/conformance.md and a fault that makes it fail in faults_test.go.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/internal/gateway/conformance/ask"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/catalog"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/check"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/reads"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/scratch"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/survey"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/writes"
)

// Options say how far a run may go. The zero value only reads.
type Options struct {
	// Write allows to create, change and delete objects in Namespace.
	Write bool
	// Namespace is where objects are made; it must exist. Write needs it.
	Namespace string
	// Object is what may be created with Write, under names of the run's own. If
	// it is nil, ConfigMaps are created. If the server has none, nothing is
	// created, and only checks by dry run are carried out.
	Object *unstructured.Unstructured
	// Resources is how many resources are looked at closely; zero means 10.
	// All of them are looked at in discovery and OpenAPI.
	Resources int
	// RequestTimeout is for how long one answer is awaited; zero means 15
	// seconds.
	RequestTimeout time.Duration
	// OpenAPIPath is where OpenAPI v2 is served, below the server's URL; empty
	// means /openapi/v2.
	OpenAPIPath string

	settle time.Duration // for a discovery that changes; zero means 2 seconds
}

func (o Options) withDefaults() (Options, error) {
	if o.Write && o.Namespace == "" {
		return o, errors.New("a namespace is needed to write in; name one that exists and that may be written to")
	}
	if o.Object != nil && (o.Object.GetKind() == "" || o.Object.GetAPIVersion() == "") {
		return o, errors.New("the object to create has no apiVersion or no kind; say both")
	}
	if o.Resources == 0 {
		o.Resources = 10
	}
	if o.RequestTimeout == 0 {
		o.RequestTimeout = 15 * time.Second
	}
	if o.settle == 0 {
		o.settle = 2 * time.Second
	}
	if o.OpenAPIPath == "" {
		o.OpenAPIPath = "/openapi/v2"
	}
	return o, nil
}

// readChecks are the checks that only read. They run before those that write.
func readChecks() []check.Check[*survey.Survey] {
	return slices.Concat(catalog.Checks(), reads.Checks())
}

// writeChecks are the checks that need Options.Write.
func writeChecks() []check.Check[*scratch.Space] { return writes.Checks() }

// Run checks the server that config reaches, one request after the other. The
// error is about the run, not about the server's conformance: the server could
// not be reached, ctx ended, or what was made could not be removed. A report
// that comes with an error is of what was seen until then.
func Run(ctx context.Context, config *rest.Config, options Options) (*Report, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	client, err := ask.NewClient(config, options.RequestTimeout)
	if err != nil {
		return nil, err
	}
	started := time.Now()
	server, err := survey.New(ctx, client, survey.Settings{
		Mark: survey.NewMark(), Resources: options.Resources, Settle: options.settle, OpenAPIPath: options.OpenAPIPath,
	})
	if err != nil {
		return nil, fmt.Errorf("reach %s: %w", client, err)
	}
	// Objects are made first, so that there is something to list.
	space := scratch.None()
	if options.Write {
		if space, err = scratch.Prepare(ctx, server, options.Namespace, options.Object); err != nil {
			return nil, err
		}
	}
	server.Sample(ctx, space.Resource())
	report := &Report{Server: client.String(), Version: server.Version, Started: started, Wrote: options.Write}
	report.Results = slices.Concat(run(ctx, readChecks(), server, true), run(ctx, writeChecks(), space, options.Write))
	report.Seconds = time.Since(started).Seconds()
	return report, errors.Join(ctx.Err(), space.CleanUp(ctx))
}

// run carries out checks, if they are allowed, until ctx ends. Whatever a check
// says once ctx has ended, it does not speak against the server.
func run[S any](ctx context.Context, checks []check.Check[S], through S, allowed bool) []Result {
	var results []Result
	for _, c := range checks {
		var f check.Finding
		switch {
		case ctx.Err() != nil:
			f.Err = check.Skipf("the run was ended before")
		case !allowed:
			f.Err = check.Skipf("it needs permission to write: --write")
		default:
			f = c.Run(ctx, through)
		}
		if ctx.Err() != nil && f.Err != nil && !check.IsSkipped(f.Err) {
			f = check.Finding{Err: check.Skipf("the run was ended meanwhile")}
		}
		results = append(results, resultOf(c, f))
	}
	return results
}
