// Package kube carries the requests of the region protocol to Kubernetes APIs, and says
// what their answers mean. It decides nothing, and never repeats a request by itself.
package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/region/stored"
)

const (
	callTimeout = 15 * time.Second
	sideBySide  = 32        // requests of one Call
	pageSize    = 250       // objects of a page of a List
	maxObjects  = 250_000   // of a whole List
	maxList     = 256 << 20 // bytes of a whole List
	maxObject   = 2 << 20   // bytes of any other answer
)

// Places are the stores that a client reaches, with the client's own credentials.
type Places struct {
	clients map[stored.Place]rest.Interface
}

// New returns the places with these configurations: that of stored.Central is the central
// store, and all others are regions.
func New(configs map[stored.Place]*rest.Config) (*Places, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	p := &Places{clients: map[stored.Place]rest.Interface{}}
	for place, config := range configs {
		config = rest.CopyConfig(config)
		version := v1alpha1.GroupVersion()
		config.GroupVersion, config.APIPath = &version, "/apis"
		config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return bounded{bearer{next}} })
		client, err := rest.RESTClientFor(config)
		if err != nil {
			return nil, fmt.Errorf("configure %s: %w", name(place), err)
		}
		p.clients[place] = client
	}
	return p, nil
}

func name(p stored.Place) string {
	if p == stored.Central {
		return "the central store"
	}
	return "region " + string(p)
}

// Call returns what carries requests out until ctx is done.
func (p *Places) Call(ctx context.Context) stored.Call {
	return func(requests ...stored.Request) []stored.Answer {
		answers := make([]stored.Answer, len(requests))
		var g errgroup.Group
		g.SetLimit(sideBySide)
		for i, r := range requests {
			g.Go(func() error {
				answers[i] = p.answer(ctx, r)
				return nil
			})
		}
		_ = g.Wait() // they return none
		return answers
	}
}

func (p *Places) answer(ctx context.Context, r stored.Request) stored.Answer {
	client := p.clients[r.Place]
	if client == nil {
		return refused(fmt.Errorf("%s is not configured", name(r.Place)))
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if r.Action == stored.List {
		return list(withAllowance(ctx, maxList), client, r)
	}
	ctx = withAllowance(ctx, maxObject)
	object, err := carryOut(ctx, client, r)
	if err != nil {
		return meaning(r, err)
	}
	if r.Action == stored.Remove {
		return stored.Answer{Outcome: stored.OK}
	}
	o, err := decode(r.Place, object)
	if err != nil {
		return refused(err)
	}
	return stored.Answer{Outcome: stored.OK, Object: o}
}

// carryOut makes one request, once. Reads ask for no resourceVersion, so that the server
// answers from its store and not from a cache that may be behind.
func carryOut(ctx context.Context, client rest.Interface, r stored.Request) (runtime.Object, error) {
	into, body, err := objects(r)
	if err != nil {
		return nil, err
	}
	var call *rest.Request
	switch r.Action {
	case stored.Insert:
		call = client.Post().Body(body)
	case stored.Replace:
		call = client.Put().Name(r.Name).Body(body)
	case stored.Remove:
		version := string(r.Version)
		call = client.Delete().Name(r.Name).
			Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}})
	default:
		call = client.Get().Name(r.Name)
	}
	result := call.Resource(resources[r.Kind]).MaxRetries(0).Do(ctx)
	if r.Action == stored.Remove {
		return nil, result.Error()
	}
	return into, result.Into(into)
}

// list reads all pages of a List. They are of one revision: if the server has forgotten that
// in between, the List has no answer.
func list(ctx context.Context, client rest.Interface, r stored.Request) stored.Answer {
	answer := stored.Answer{Outcome: stored.OK}
	options := metav1.ListOptions{Limit: pageSize}
	for {
		into, items := listOf(r.Kind)
		err := client.Get().Resource(resources[r.Kind]).VersionedParams(&options, metav1.ParameterCodec).
			MaxRetries(0).Do(ctx).Into(into)
		if err != nil {
			return meaning(r, err)
		}
		for _, item := range items() {
			o, err := decode(r.Place, item)
			if err != nil {
				return refused(err)
			}
			answer.Objects = append(answer.Objects, o)
		}
		if options.Continue = into.GetContinue(); options.Continue == "" {
			return answer
		}
		if len(answer.Objects) > maxObjects {
			return refused(fmt.Errorf("%s has more than %d objects of kind %s", name(r.Place), maxObjects, r.Kind))
		}
	}
}

// meaning says what an error means for a request. Only what the server has certainly not
// carried out, and would not another time, is Refused.
func meaning(r stored.Request, err error) stored.Answer {
	switch {
	case apierrors.IsNotFound(err) && !isMissing(r, err):
		return refused(fmt.Errorf("%s %w %s.%s: %w", name(r.Place), ErrNotServed, resources[r.Kind], v1alpha1.GroupName, err))
	case apierrors.IsNotFound(err) && r.Action == stored.Replace,
		apierrors.IsAlreadyExists(err) && r.Action == stored.Insert,
		apierrors.IsConflict(err) && (r.Action == stored.Replace || r.Action == stored.Remove):
		return stored.Answer{Outcome: stored.Conflict}
	case apierrors.IsNotFound(err):
		return stored.Answer{Outcome: stored.NotFound}
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err),
		apierrors.IsMethodNotSupported(err), apierrors.IsRequestEntityTooLargeError(err), errors.Is(err, errRefused):
		return refused(err)
	}
	return stored.Answer{Outcome: stored.Unknown, Err: err}
}

// isMissing says whether the server tells that there is no such object, rather than that it
// does not know its kind, or that somebody on the way knows nothing of either: an absent
// record means that its operation was aborted or collected, and that must be true.
func isMissing(r stored.Request, err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return false
	}
	d := status.Status().Details
	return d != nil && r.Name != "" && d.Name == r.Name && d.Kind == resources[r.Kind] && d.Group == v1alpha1.GroupName
}

// ErrNotServed marks refusals of a place that does not have the definitions.
var ErrNotServed = errors.New("does not serve")

// errRefused marks requests that are wrong before they are sent.
var errRefused = errors.New("cannot be asked for")

func refused(err error) stored.Answer { return stored.Answer{Outcome: stored.Refused, Err: err} }

type tokenKey struct{}

// WithToken returns a context in which requests are made with a bearer token; "": without one.
func WithToken(ctx context.Context, token string) context.Context {
	return context.WithValue(ctx, tokenKey{}, token)
}

// bearer sends the token of a request's context.
type bearer struct{ next http.RoundTripper }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if token, _ := r.Context().Value(tokenKey{}).(string); token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return b.next.RoundTrip(r)
}

// allowance is how many bytes a call may still read. A call reads one answer at a time.
type allowance struct{ left int64 }

type allowanceKey struct{}

func withAllowance(ctx context.Context, bytes int64) context.Context {
	return context.WithValue(ctx, allowanceKey{}, &allowance{bytes})
}

// bounded ends answers that are too large to be honest.
type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.next.RoundTrip(r)
	if a, ok := r.Context().Value(allowanceKey{}).(*allowance); ok && err == nil {
		response.Body = &counted{http.MaxBytesReader(nil, response.Body, a.left), a}
	}
	return response, err
}

// counted is a body that uses an allowance up.
type counted struct {
	io.ReadCloser
	allowance *allowance
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.allowance.left -= int64(n)
	return n, err
}
