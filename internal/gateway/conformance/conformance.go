// Package conformance checks that an API server follows the Kubernetes API
// conventions. It never changes anything on a server that it checks, unless it
// is told that it may, and then only objects that it made itself.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
)

// Options say how far a run may go. The zero value only reads.
type Options struct {
	// Write allows to create, change and delete objects in Namespace.
	Write bool
	// Namespace is where objects are made; it must exist. Write needs it.
	Namespace string
	// Object is what may be created with Write, under names of our own. Nil:
	// a ConfigMap, if the server has those; else nothing is created, and what
	// can be checked by dry run is.
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

	settle time.Duration // that discovery is given to settle; zero means 2 seconds
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

// A check holds a server to one convention.
type check struct {
	id         string // group.what, stable: people and programs refer to it
	convention string // what a server does that follows it
	source     string // where that is written
	writes     bool   // needs Options.Write
	run        func(context.Context, *session) finding
}

// checks are all there are, in the order they run in: those that write come
// last, and of these the one that deletes.
func checks() []check {
	var all []check
	for _, some := range [][]check{
		discoveryChecks(), openAPIChecks(), listChecks(), statusChecks(), resourceVersionChecks(),
		paginationChecks(), tableChecks(), watchChecks(),
		dryRunChecks(), fieldValidationChecks(), objectChecks(), applyChecks(), watchWriteChecks(), deleteChecks(),
	} {
		all = append(all, some...)
	}
	return all
}

// Run checks the server that config reaches, one request after the other. The
// error is about the run, not about the server's conformance: the server could
// not be reached, ctx ended, or what was made could not be removed. A report
// that comes with an error is of what was seen until then.
func Run(ctx context.Context, config *rest.Config, options Options) (*Report, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	client, err := newClient(config, options.RequestTimeout)
	if err != nil {
		return nil, err
	}
	started := time.Now()
	s := &session{client: client, options: options, id: newRunID()}
	if err := s.discover(ctx); err != nil {
		return nil, fmt.Errorf("reach %s: %w", client, err)
	}
	if options.Write {
		if err := s.prepareWrites(ctx); err != nil {
			return nil, errors.Join(err, s.cleanUp(ctx))
		}
	}
	s.look(ctx)
	report := &Report{Server: client.String(), Version: s.version, Started: started, Wrote: options.Write}
	for _, c := range checks() {
		report.Results = append(report.Results, c.result(ctx, s))
	}
	report.Seconds = time.Since(started).Seconds()
	return report, errors.Join(ctx.Err(), s.cleanUp(ctx))
}

func (c check) result(ctx context.Context, s *session) Result {
	var f finding
	switch {
	case ctx.Err() != nil:
		f = skip("the run was ended before")
	case c.writes && !s.options.Write:
		f = skip("it needs leave to write: --write")
	default:
		f = c.run(ctx, s)
	}
	if ctx.Err() != nil && f.outcome == Fail {
		f = skip("the run was ended meanwhile")
	}
	return Result{ID: c.id, Convention: c.convention, Source: c.source, Outcome: f.outcome, Reason: f.reason, Resources: f.resources}
}

// Where conventions are written.
const (
	concepts    = "https://kubernetes.io/docs/reference/using-api/api-concepts/"
	conventions = "https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md"
	apiPage     = "https://kubernetes.io/docs/concepts/overview/kubernetes-api/"
	applyPage   = "https://kubernetes.io/docs/reference/using-api/server-side-apply/"
)
