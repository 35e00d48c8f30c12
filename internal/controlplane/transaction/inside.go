package transaction

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/xbernetes/xbernetes/internal/controlplane/stage"
)

// auditID is the annotation of an operation's entry in the audit log: the audit ID of
// the transaction.
const auditID = "transaction.xbernetes.io/audit-id"

// inside sends requests to the API server that it is part of, as parts of a
// transaction.
type inside struct{ chain http.Handler }

// chainOf makes the handlers that a request of a transaction passes: all that a plain
// request does, but that its user is known already, and that it needs no seat of
// priority and fairness, for the transaction holds one.
func chainOf(server *genericapiserver.GenericAPIServer, config genericapiserver.Config) http.Handler {
	config.Authentication.Authenticator = authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		u, ok := request.UserFrom(r.Context())
		return &authenticator.Response{User: u}, ok, nil
	})
	config.FlowControl, config.MaxRequestsInFlight, config.MaxMutatingRequestsInFlight = nil, 0, 0
	director := server.Handler.Director
	return genericapiserver.DefaultBuildHandlerChain(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := partOf(r.Context()); p.id != "" {
			audit.AddAuditAnnotation(r.Context(), auditID, p.id)
		}
		director.ServeHTTP(w, r)
	}), &config)
}

// origin is what a request of a transaction says of where it comes from: what the
// transaction itself said.
type origin struct {
	address string
	header  http.Header
}

// part is what a request knows of the transaction that it belongs to.
type part struct {
	origin origin
	id     string // the transaction's audit ID
	dryRun bool
	own    bool // the API server itself sends it
	run    *run
}

type (
	originKey struct{}
	partKey   struct{}
)

// partOf returns what ctx knows of its transaction; the zero value if it belongs to none.
func partOf(ctx context.Context) part {
	p, _ := ctx.Value(partKey{}).(part)
	return p
}

// Remember keeps where the requests that post transactions come from.
func Remember(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == transactionsPath {
			o := origin{r.RemoteAddr, http.Header{}}
			for _, name := range []string{"User-Agent", "X-Forwarded-For", "X-Real-Ip"} {
				if values := r.Header.Values(name); len(values) > 0 {
					o.header[name] = values
				}
			}
			r = r.WithContext(context.WithValue(r.Context(), originKey{}, o))
		}
		next.ServeHTTP(w, r)
	})
}

// bare is a context that ends with another, and has none of its values: a request of
// a transaction has an audit entry, warnings and a deadline of its own.
type bare struct{ context.Context }

func (bare) Value(any) any { return nil }

// send carries out c for u as part of a transaction. number makes its audit ID unique.
func (i inside) send(ctx context.Context, u user.Info, p part, number int, c call) (a *answer) {
	ctx = stage.With(request.WithUser(context.WithValue(bare{ctx}, partKey{}, p), u), p.run.txn)
	target := url.URL{Path: c.path, RawQuery: c.query.Encode()}
	r, err := http.NewRequestWithContext(ctx, c.method, target.String(), bytes.NewReader(c.body))
	if err != nil {
		return failed(fmt.Errorf("make the request: %w", err))
	}
	r.RemoteAddr, r.RequestURI, r.Host = p.origin.address, target.RequestURI(), "transaction"
	for name, values := range p.origin.header {
		r.Header[name] = values
	}
	r.Header.Set("Accept", runtime.ContentTypeJSON)
	r.Header.Set("Content-Type", c.contentType)
	if p.id != "" {
		r.Header.Set("Audit-ID", fmt.Sprintf("%s-%d", p.id, number))
	}
	a = &answer{header: http.Header{}}
	defer func() {
		if reason := recover(); reason != nil { // http.ErrAbortHandler: the log has why
			a = failed(fmt.Errorf("the request was aborted"))
		}
	}()
	i.chain.ServeHTTP(a, r)
	return a
}

// answer is an http.ResponseWriter that keeps the answer in memory.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(code int) {
	if a.code == 0 {
		a.code = code
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// ok says whether the request succeeded.
func (a *answer) ok() bool { return a.code >= 200 && a.code < 300 }
