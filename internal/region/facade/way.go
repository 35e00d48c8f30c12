package facade

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/xbernetes/xbernetes/api/region/client"
	"github.com/xbernetes/xbernetes/internal/gateway/backend"
	"github.com/xbernetes/xbernetes/internal/gateway/call"
	"github.com/xbernetes/xbernetes/internal/region/facade/objects"
)

// target is where a path leads.
type target struct {
	kind string // "regions" or "serviceclusters"; "": to the facade itself
	name string // a DNS label
}

type targetKey struct{}

func targetOf(r *http.Request) target {
	t, _ := r.Context().Value(targetKey{}).(target)
	return t
}

// split reads where a URL leads, and returns the URL as it is there.
func split(u *url.URL) (target, *url.URL, error) {
	escaped := u.EscapedPath()
	for _, kind := range []string{"regions", "serviceclusters"} {
		rest, ok := strings.CutPrefix(escaped, "/"+kind+"/")
		if !ok {
			continue
		}
		name, _, _ := strings.Cut(rest, "/")
		if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
			return target{}, nil, fmt.Errorf("the path leads to no name that there can be: %s", wrong[0])
		}
		// The part that is cut off has no escapes, and so is as long in either form.
		cut := len("/" + kind + "/" + name)
		there := *u
		there.Path = orRoot(u.Path[cut:])
		if there.RawPath = ""; u.RawPath != "" {
			there.RawPath = orRoot(u.RawPath[cut:])
		}
		return target{kind, name}, &there, nil
	}
	return target{}, u, nil
}

func orRoot(path string) string {
	if path == "" {
		return "/"
	}
	return path
}

// begin reads where a request leads, and has later steps see it as it is there.
func (f *Facade) begin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to, there, err := split(r.URL)
		if err != nil {
			f.refuse(w, r, http.StatusNotFound, err.Error())
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), targetKey{}, to))
		r.URL = there
		begun, err := call.Begin(r)
		if err != nil {
			f.refuse(w, r, http.StatusBadRequest, fmt.Sprintf("the request cannot be understood: %v", err))
			return
		}
		next.ServeHTTP(w, begun)
	})
}

// answer answers a request that its caller's limits let pass.
func (f *Facade) answer(w http.ResponseWriter, r *http.Request) {
	to := targetOf(r)
	if path := r.URL.Path; to.kind == "" && (path == "/healthz" || path == "/livez" || path == "/readyz") {
		fmt.Fprint(w, "ok")
		return
	}
	token, err := bearer(r)
	switch {
	case err != nil:
		f.refuse(w, r, http.StatusUnauthorized, err.Error())
	case to.kind == "regions":
		f.toRegion(w, r, to.name)
	case to.kind == "serviceclusters":
		f.toServiceCluster(w, r, token, to.name)
	case backend.Impersonates(r.Header) && call.Of(r).Info.IsResourceRequest:
		f.refuse(w, r, http.StatusForbidden, "regions are asked for names as the caller alone: --as works below /regions/NAME/ and /serviceclusters/NAME/")
	case objects.Serves(r.URL.Path):
		address, _, _ := net.SplitHostPort(r.RemoteAddr)
		f.objects.ServeHTTP(w, r.WithContext(objects.WithCaller(r.Context(), objects.Caller{Token: token, Address: address})))
	default:
		f.refuse(w, r, http.StatusNotFound, "the facade serves /regions/NAME/, /serviceclusters/NAME/ and /apis/region.xbernetes.io/")
	}
}

// bearer returns the caller's token.
func bearer(r *http.Request) (string, error) {
	headers := r.Header["Authorization"]
	if len(headers) == 0 {
		return "", errors.New("the facade has no rights of its own, and a client certificate cannot be passed on to a region: send a bearer token that the region takes " +
			"(kubectl --token, or a kubeconfig user with token or exec), or go to the region directly")
	}
	scheme, token, _ := strings.Cut(headers[0], " ")
	if token = strings.TrimSpace(token); len(headers) > 1 || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", errors.New("the request must have one Authorization header, with a bearer token")
	}
	return token, nil
}

// toRegion forwards a request to a region.
func (f *Facade) toRegion(w http.ResponseWriter, r *http.Request, name string) {
	to := f.ways[name]
	if to == nil {
		f.refuse(w, r, http.StatusNotFound, fmt.Sprintf("region %q is not configured", name))
		return
	}
	to.limited.ServeHTTP(w, r)
}

// toServiceCluster forwards a request to the home of a service cluster. If the answer says
// that it may be the wrong region, the next request finds out: this one is not repeated.
func (f *Facade) toServiceCluster(w http.ResponseWriter, r *http.Request, token, name string) {
	as := f.regions.As(token, nil)
	home, err := as.Route(r.Context(), client.ServiceCluster, name)
	if err != nil {
		f.answers.Respond(w, r, statusOf(err))
		return
	}
	if f.ways[home] == nil {
		f.refuse(w, r, http.StatusServiceUnavailable, fmt.Sprintf("the home of the service cluster %s, region %q, was removed or is not configured", name, home))
		return
	}
	seen := &witness{ResponseWriter: w}
	f.toRegion(responsewriter.WrapForHTTP1Or2(seen), r, home)
	switch seen.code {
	case http.StatusNotFound, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		as.Doubt(client.ServiceCluster, name, home)
	}
}

// witness is a ResponseWriter that remembers the answer's code.
type witness struct {
	http.ResponseWriter
	code int
}

// Unwrap returns the writer below, for http.ResponseController.
func (w *witness) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader remembers the code.
func (w *witness) WriteHeader(code int) {
	w.code = code
	w.ResponseWriter.WriteHeader(code)
}
