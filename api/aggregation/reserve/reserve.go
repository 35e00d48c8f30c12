// Package reserve is for an API server that clients reach directly, past the
// gateway. Before it creates an object, it asks the gateway, in one atomic call,
// whether the namespace exists, the user may and the quota has room. The package
// never creates or stores anything itself.
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

// ErrNotCreated marks the error of a create that has made no object, and never
// will. Wrap it if the error itself does not say so.
var ErrNotCreated = errors.New("nothing was created")

// endTime bounds the request that tells the gateway the result of a create.
const endTime = 5 * time.Second

// Client asks a gateway on behalf of one server. It is safe for concurrent use.
type Client struct {
	rest   rest.Interface
	server string
}

// New returns a client for the server that has a RemoteAPIServer of that name. The
// config reaches the gateway as the server's own user; docs/policies.md has the
// role that this user needs.
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
		c.QPS = -1 // every create asks; the caller may set a limit
	}
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("prepare to reach the gateway: %w", err)
	}
	return &Client{rest: client, server: server}, nil
}

// Request is a create that is about to happen.
type Request struct {
	// Namespace is where the object will be, and Group, Version and Resource are its
	// kind.
	Namespace, Group, Version, Resource string
	// User is who asked for the create. If it is nil, the server itself has checked
	// that the user may.
	User *v1alpha1.ReservationUser
	// Timeout is how long the create may take; the gateway's limit if 0.
	Timeout time.Duration
	// DryRun asks whether there would be room, and reserves nothing.
	DryRun bool
}

// Reservation is a place that is kept for one create. Call Landed or Returned, once,
// with the result of the create. If the result is unknown, call neither: once the
// reservation has lapsed, the gateway finds out by listing the server's objects.
type Reservation struct {
	// Deadline is when the create must have ended; the zero time if no quota limits
	// it.
	Deadline time.Time

	client          *Client
	namespace, name string
}

// Reserve reserves a place for a create. If the gateway refuses, the error is an API
// error of Kubernetes, to be returned to the user as it is: NotFound for the
// namespace, Forbidden for the user or the quota. If the gateway cannot be reached,
// nothing may be created; if it has reserved a place all the same, that lapses by
// itself.
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
	// Not retried: if an answer is lost, the gateway has already reserved a place too many.
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

// Landed tells the gateway that the object exists.
func (r *Reservation) Landed(ctx context.Context) error {
	return r.end(ctx, http.MethodPost, "landed")
}

// Returned tells the gateway that nothing was created, and nothing will be.
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
		return nil // the gateway was told before, or has found out after the reservation lapsed
	}
	return err
}

// Create reserves a place, calls create, and tells the gateway the result. The
// context of create ends when the place lapses. If create returns ErrNotCreated or an
// API error with a 4xx code, nothing was created. After any other error the object
// may exist, and the gateway finds out.
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
	// If the gateway cannot be told now, it finds out later.
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

// notCreated reports whether a create that failed with err has made no object.
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
