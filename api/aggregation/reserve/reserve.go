// Package reserve lets an API server that clients reach directly hold the core
// server's namespaces, authorization and quotas: it asks a gateway, in one
// atomic call, before it creates an object. It never creates or stores anything
// itself.
package reserve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
)

// ErrNotCreated marks an error of a create after which no object exists, nor
// ever will of this create. Wrap it, where the error itself does not say so.
var ErrNotCreated = errors.New("nothing was created")

// endTime bounds how long the gateway is told what became of a create.
const endTime = 5 * time.Second

// Client asks a gateway on behalf of one server. It is safe for concurrent use.
type Client struct {
	rest   rest.Interface
	server string
}

// New returns a client for the server that the gateway knows as a
// RemoteAPIServer of that name. The config is how to reach the gateway, as the
// server's own user; docs/policies.md has the role that it needs.
func New(config *rest.Config, server string) (*Client, error) {
	if server == "" {
		return nil, errors.New("a reservation needs the name under which the gateway knows the server")
	}
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	c := rest.CopyConfig(config)
	c.GroupVersion = &schema.GroupVersion{Group: v1alpha1.GroupName, Version: "v1alpha1"}
	c.APIPath = "/apis"
	c.ContentType = runtime.ContentTypeJSON
	if c.QPS == 0 && c.RateLimiter == nil {
		c.QPS = -1 // every create asks; who wants less says so
	}
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("prepare to reach the gateway: %w", err)
	}
	return &Client{rest: client, server: server}, nil
}

// Request is one create that is about to happen.
type Request struct {
	// Namespace, and Group, Version and Resource say where, and of what kind.
	Namespace, Group, Version, Resource string
	// User is who asked for it. Without, the server answers for that they may.
	User *v1alpha1.ReservationUser
	// Timeout is how long the create may take; the gateway's limit if 0.
	Timeout time.Duration
	// DryRun only asks whether there would be room.
	DryRun bool
}

// Reservation is a place that is kept for one create. Say what became of it,
// once, by Landed or Returned. Where neither can be said, say nothing: the
// gateway finds out, by listing what the server holds, once it has lapsed.
type Reservation struct {
	// Deadline is when the create must have been carried out; without a limit,
	// the zero time.
	Deadline time.Time

	client          *Client
	namespace, name string
}

// Reserve reserves a place for a create, or returns the refusal: an API error
// of Kubernetes, to be given to the user as it is (NotFound for the namespace,
// Forbidden for the user or the quota). If the gateway is not to be reached
// nothing may be created; a place that it may have kept then lapses by itself.
func (c *Client) Reserve(ctx context.Context, r Request) (*Reservation, error) {
	asked := time.Now()
	body, err := json.Marshal(&v1alpha1.Reservation{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: "Reservation"},
		Spec: v1alpha1.ReservationSpec{
			Server: c.server, Group: r.Group, Version: r.Version, Resource: r.Resource, User: r.User, DryRun: r.DryRun,
			TimeoutSeconds: int64((r.Timeout + time.Second - 1) / time.Second),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("encode a reservation: %w", err)
	}
	// Not retried: an answer that is lost has reserved one place too many already.
	result := c.rest.Post().Namespace(r.Namespace).Resource("reservations").MaxRetries(0).Body(body).Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	raw, err := result.Raw()
	if err != nil {
		return nil, err
	}
	var res v1alpha1.Reservation
	if err := json.Unmarshal(raw, &res); err != nil {
		return nil, fmt.Errorf("read what the gateway has reserved: %w", err)
	}
	if !res.Status.Limited {
		return &Reservation{}, nil
	}
	return &Reservation{
		Deadline: asked.Add(time.Duration(res.Status.TimeoutSeconds) * time.Second),
		client:   c, namespace: r.Namespace, name: res.Name,
	}, nil
}

// Landed says that the object exists.
func (r *Reservation) Landed(ctx context.Context) error {
	return r.end(ctx, http.MethodPost, "landed")
}

// Returned says that nothing was created, and nothing will be.
func (r *Reservation) Returned(ctx context.Context) error {
	return r.end(ctx, http.MethodDelete, "")
}

func (r *Reservation) end(ctx context.Context, verb, how string) error {
	if r.client == nil {
		return nil
	}
	q := r.client.rest.Verb(verb).Namespace(r.namespace).Resource("reservations").Name(r.name)
	if how != "" {
		q = q.SubResource(how)
	}
	err := q.Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return nil // it was said before, or has lapsed and been settled
	}
	return err
}

// Create reserves a place, calls create, and says what became of it. The context
// that create gets ends when the place does. An error of create counts as
// nothing created if it is ErrNotCreated or an API error with a 4xx code; after
// any other the object may exist, and the gateway finds out.
func (c *Client) Create(ctx context.Context, r Request, create func(context.Context) error) error {
	place, err := c.Reserve(ctx, r)
	if err != nil {
		return err
	}
	bounded, cancel := ctx, context.CancelFunc(func() {})
	if !place.Deadline.IsZero() {
		bounded, cancel = context.WithDeadline(ctx, place.Deadline)
	}
	defer cancel()
	if err = bounded.Err(); err != nil {
		err = fmt.Errorf("%w: the reservation took too long: %w", ErrNotCreated, err)
	} else {
		err = create(bounded)
	}
	// What cannot be said now, the gateway finds out later.
	told, cancelTold := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancelTold()
	switch {
	case err == nil:
		_ = place.Landed(told)
	case notCreated(err):
		_ = place.Returned(told)
	}
	return err
}

func notCreated(err error) bool {
	if errors.Is(err, ErrNotCreated) {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != http.StatusRequestTimeout
}
