package gateway

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/backend"
	"github.com/xbernetes/xbernetes/internal/gateway/discovery"
)

// ownPaths answers requests for the gateway's own pages, if the caller may read them.
type ownPaths struct {
	registry   *registry
	problem    func() string                      // why the source is not up to date; "" if it is
	authorizer authorizer.UnconditionalAuthorizer // nil: every caller may read everything
	metrics    http.Handler
}

func (o *ownPaths) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !o.mayRead(w, r) {
		return
	}
	rest := strings.TrimPrefix(r.URL.Path, "/servers/")
	name, what, _ := strings.Cut(rest, "/")
	switch e := o.registry.table.Load().servers[name]; {
	case r.URL.Path == "/metrics":
		o.metrics.ServeHTTP(w, r)
	case r.URL.Path == "/servers":
		o.list(w)
	case e != nil && what == "":
		writeJSON(w, describeServer(e))
	case e != nil && what == "conformance":
		if c := e.member.known().checked; c != nil && c.report != nil {
			writeJSON(w, c.report)
			return
		}
		refuse(w, r, http.StatusNotFound, fmt.Sprintf("server %q has not been checked yet; its condition Conformant says why", name))
	default:
		discovery.NotFound(w, r)
	}
}

// mayRead says whether the caller may read one of the gateway's own pages, and answers the
// request if not. The authorizer judges it as Kubernetes judges paths outside its API.
func (o *ownPaths) mayRead(w http.ResponseWriter, r *http.Request) bool {
	if o.authorizer == nil {
		return true
	}
	caller, _ := apirequest.UserFrom(r.Context())
	decision, why, err := o.authorizer.Authorize(r.Context(), authorizer.AttributesRecord{User: caller, Verb: "get", Path: r.URL.Path})
	switch {
	case err != nil:
		refuse(w, r, http.StatusServiceUnavailable, fmt.Sprintf("whether you may read %s could not be found out: %v", r.URL.Path, err))
	case decision != authorizer.DecisionAllow:
		refuse(w, r, http.StatusForbidden, fmt.Sprintf("user %q may not get %s: %s", caller.GetName(), r.URL.Path, cmp.Or(why, "no rule allows it")))
	}
	return err == nil && decision == authorizer.DecisionAllow
}

// serverState is a server's entry in /servers.
type serverState struct {
	Name     string                         `json:"name"`
	URLs     []string                       `json:"urls"`
	Identity v1alpha1.IdentityMode          `json:"identity"`
	Guard    v1alpha1.Guard                 `json:"guard"`
	Status   v1alpha1.RemoteAPIServerStatus `json:"status"`
}

func describeServer(e *entry) serverState {
	return serverState{e.server.Name, e.server.Spec.BaseURLs(), e.server.Spec.IdentityMode(), e.server.Spec.Guard, e.status}
}

// list answers with the state of each server.
func (o *ownPaths) list(w http.ResponseWriter) {
	out := struct {
		Problem string        `json:"sourceProblem,omitempty"`
		Servers []serverState `json:"servers"`
	}{Problem: o.problem(), Servers: []serverState{}}
	for _, e := range o.registry.table.Load().servers {
		out.Servers = append(out.Servers, describeServer(e))
	}
	slices.SortFunc(out.Servers, func(a, b serverState) int { return cmp.Compare(a.Name, b.Name) })
	writeJSON(w, out)
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // it only fails if the caller is gone
}

// refuse answers with a Kubernetes Status.
func refuse(w http.ResponseWriter, r *http.Request, code int, message string) {
	status := &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Message: message, Reason: backend.StatusReason(code),
	}}
	discovery.WriteStatus(w, r, status)
}
