package controlplane

import (
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/xbernetes/xbernetes/internal/controlplane/transaction"
	"github.com/xbernetes/xbernetes/internal/door"
)

const (
	// maxBodies is how many bytes of request bodies may be held at once.
	maxBodies = 256 << 20
	// maxStalled is how many answers may be held up by callers who do not take them.
	// Each keeps up to ten of the seats that priority and fairness gives out, of which
	// ordinary users have 245.
	maxStalled = 16
)

// limit bounds request bodies, watches, and answers that nobody reads. Upstream's
// priority and fairness does not: it lets a request in before its body has come, does not
// count watches, and waits until an answer is read.
func limit(c *genericapiserver.Config, watches int) {
	build := c.BuildHandlerChainFunc
	c.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		return transaction.Remember(bounded(build(share(api, c, door.NewShares(watches), door.NewStalls(maxStalled)), c), maxBodies))
	}
}

// bounded passes a request on once its body has come, and ends requests that make
// no progress.
func bounded(chain http.Handler, bodies int) http.Handler {
	return door.Pace(door.Collect(chain, bodies, nil), door.Pacing{})
}

// share lets each user have as many long-running requests as are free in all, and hold
// up as many other answers as are free. The group system:masters, to which this server
// itself belongs, may have any number.
func share(next http.Handler, c *genericapiserver.Config, watches *door.Shares, stalls *door.Stalls) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, known := request.RequestInfoFrom(r.Context())
		u, named := request.UserFrom(r.Context())
		if !known || !named || slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
			next.ServeHTTP(w, r)
			return
		}
		if !c.LongRunningFunc(r, info) {
			next.ServeHTTP(stalls.Writer(w, u.GetName()), r)
			return
		}
		if !watches.Enter(u.GetName()) {
			err := apierrors.NewTooManyRequests("too many watches are open, in all or of this user: try again in a second", 1)
			responsewriters.ErrorNegotiated(err, c.Serializer, schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, w, r)
			return
		}
		defer watches.Leave(u.GetName())
		next.ServeHTTP(w, r)
	})
}
