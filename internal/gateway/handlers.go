package gateway

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/xbernetes/xbernetes/internal/door"
	"github.com/xbernetes/xbernetes/internal/gateway/call"
)

// handler is the way of a request: it passes the steps from top to bottom, and then
// its Call's Answer answers it.
func (g *Gateway) handler() http.Handler {
	router := newRouter(g)
	steps := []func(http.Handler) http.Handler{
		pace,              // ends a request whose caller is too slow
		g.survive,         // answers 500 if a later step panics
		begin,             // the request gets its Call: the caller's credentials, and what the URL says
		router.route,      // the Call gets its Server and its Answer
		g.authenticate,    // the context gets the user
		g.traffic.Callers, // the caller's limits; metrics, log and trace
		g.admit,           // answers health checks; refuses callers who are not known
		g.impersonate,     // the user becomes whom the request is made as
	}
	if g.guard != nil {
		steps = append(steps, g.guard.Wrap) // guarded requests: canonical form, rights, namespaces, quotas
	}
	var h http.Handler = http.HandlerFunc(answer)
	for _, step := range slices.Backward(steps) {
		h = step(h)
	}
	return h
}

func answer(w http.ResponseWriter, r *http.Request) { call.Of(r).Answer(w, r) }

func pace(next http.Handler) http.Handler { return door.Pace(next, door.Pacing{}) }

func (g *Gateway) survive(next http.Handler) http.Handler {
	return door.Survive(next, g.log, func(w http.ResponseWriter, r *http.Request) {
		refuse(w, r, http.StatusInternalServerError, "the gateway failed on this request; its log says more")
	})
}

// begin gives each request its Call, which the steps after it read.
func begin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun, err := call.Begin(r)
		if err != nil {
			refuse(w, r, http.StatusBadRequest, fmt.Sprintf("the request cannot be understood: %v", err))
			return
		}
		next.ServeHTTP(w, begun)
	})
}
