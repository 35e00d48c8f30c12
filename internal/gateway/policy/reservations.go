package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/ledger"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/namespaces"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/quota"
)

const (
	reservationsPath = "/apis/" + v1alpha1.GroupName + "/v1alpha1/namespaces/{namespace}/reservations"
	maxReservation   = 64 << 10 // bytes of a request
)

// Reservations serves the API by which servers that clients reach directly reserve
// creates: see v1alpha1.Reservation. The request's context must have the user,
// which is the server that reserves.
func (g *Guard) Reservations() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+reservationsPath, g.postReservation)
	mux.HandleFunc("POST "+reservationsPath+"/{name}/landed", func(w http.ResponseWriter, r *http.Request) {
		g.endReservation(w, r, true)
	})
	mux.HandleFunc("DELETE "+reservationsPath+"/{name}", func(w http.ResponseWriter, r *http.Request) {
		g.endReservation(w, r, false)
	})
	return mux
}

func (g *Guard) postReservation(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReservation))
	if err != nil {
		g.answers.write(apierrors.NewBadRequest(fmt.Sprintf("read the reservation: %v", err)), w, r)
		return
	}
	res, err := parseReservation(body)
	if err != nil {
		g.answers.write(apierrors.NewBadRequest(err.Error()), w, r)
		return
	}
	res.Namespace = r.PathValue("namespace")
	if err := g.fill(r.Context(), res); err != nil {
		g.answers.write(err, w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	if err := json.NewEncoder(w).Encode(res); err != nil {
		g.log.Debug("the answer to a reservation was not delivered", "err", err)
	}
}

// parseReservation reads a reservation, and refuses one that lacks a field or has a
// value out of range.
func parseReservation(body []byte) (*v1alpha1.Reservation, error) {
	res := &v1alpha1.Reservation{}
	if err := json.Unmarshal(body, res); err != nil {
		return nil, fmt.Errorf("the reservation is no JSON of its kind: %w", err)
	}
	switch s := res.Spec; {
	case s.Server == "" || s.Version == "" || s.Resource == "":
		return nil, errors.New("spec.server, spec.version and spec.resource are needed")
	case s.TimeoutSeconds < 0 || s.TimeoutSeconds > int64(time.Hour/time.Second):
		return nil, errors.New("spec.timeoutSeconds must be 0 to 3600")
	case s.User != nil && s.User.Username == "":
		return nil, errors.New("spec.user has no username")
	}
	return res, nil
}

// fill reserves what res asks for, and sets its name and status. The error is meant
// for the caller.
func (g *Guard) fill(ctx context.Context, res *v1alpha1.Reservation) error {
	caller, err := g.mayReserve(ctx, res.Namespace, res.Spec.Server)
	if err != nil {
		return err
	}
	server, ok := g.servers.For(res.Spec.Group)
	if !ok || server.Name != res.Spec.Server {
		return apierrors.NewBadRequest(fmt.Sprintf("the gateway does not know group %q as one of server %s", res.Spec.Group, res.Spec.Server))
	}
	gr := schema.GroupResource{Group: res.Spec.Group, Resource: res.Spec.Resource}
	if u := res.Spec.User; u != nil && server.Guard.Authorization {
		err := g.authorize(ctx, authorizer.AttributesRecord{
			User: &user.DefaultInfo{Name: u.Username, UID: u.UID, Groups: u.Groups, Extra: u.Extra}, ResourceRequest: true,
			Verb: "create", Namespace: res.Namespace, APIGroup: gr.Group, APIVersion: res.Spec.Version, Resource: gr.Resource,
		})
		if err != nil {
			return err
		}
	}
	a := quota.Request{
		Namespace: res.Namespace, Server: server.Name, Guard: server.Guard,
		Resource: gr.String(), Version: res.Spec.Version, By: caller, Timeout: g.requestTimeout,
	}
	if res.Spec.User != nil {
		a.User = res.Spec.User.Username
	}
	if d := time.Duration(res.Spec.TimeoutSeconds) * time.Second; d > 0 && d < a.Timeout {
		a.Timeout = d
	}
	if res.Spec.DryRun {
		if err := g.reserver.Check(ctx, a); err != nil {
			return statusOfError(err, a)
		}
		return nil
	}
	held, err := g.reserver.Reserve(ctx, a)
	if err != nil {
		g.logRefusal(err, a)
		return statusOfError(err, a)
	}
	if held != nil {
		res.Name = held.ID
		res.Status = v1alpha1.ReservationStatus{Limited: true, TimeoutSeconds: int64(a.Timeout / time.Second)}
	}
	return nil
}

// mayReserve asks whether the caller may reserve under a server's name, and returns
// the caller's own name.
func (g *Guard) mayReserve(ctx context.Context, namespace, server string) (string, error) {
	u, ok := request.UserFrom(ctx)
	if !ok {
		return "", apierrors.NewUnauthorized("nobody has said who asks")
	}
	return u.GetName(), g.authorize(ctx, authorizer.AttributesRecord{
		User: u, ResourceRequest: true, Verb: "create", Namespace: namespace, APIGroup: v1alpha1.GroupName, APIVersion: "v1alpha1",
		Resource: "reservations", Name: server,
	})
}

// endReservation ends a reservation of the caller's own. landed says that the
// create may have made its object.
func (g *Guard) endReservation(w http.ResponseWriter, r *http.Request, landed bool) {
	name, ns := r.PathValue("name"), r.PathValue("namespace")
	gr := schema.GroupResource{Group: v1alpha1.GroupName, Resource: "reservations"}
	u, ok := request.UserFrom(r.Context())
	if !ok {
		g.answers.write(apierrors.NewUnauthorized("nobody has said who asks"), w, r)
		return
	}
	switch err := g.reserver.End(r.Context(), ns, name, u.GetName(), landed); {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, ledger.ErrNotFound), errors.Is(err, namespaces.ErrMissing):
		g.answers.write(apierrors.NewNotFound(gr, name), w, r)
	default:
		g.answers.write(apierrors.NewServiceUnavailable(fmt.Sprintf("the gateway cannot end reservation %s in namespace %s: %v; try again, or leave it to lapse", name, ns, err)), w, r)
	}
}
