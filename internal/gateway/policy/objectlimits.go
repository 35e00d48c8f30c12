package policy

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/xbernetes/xbernetes/internal/gateway/canonical"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/limitrange"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/quota"
)

// checkLimits holds the object that a request would create to the limit ranges of
// its namespace. The object's kind is what discovery says. The error is meant for
// the caller.
func (g *Guard) checkLimits(ctx context.Context, q *canonical.Request, a quota.Request) error {
	items, err := g.limits.Of(ctx, a.Namespace, q.Kind.Group, q.Kind.Kind)
	if err != nil {
		return statusOfError(err, a)
	}
	if len(items) == 0 {
		return nil
	}
	asked, err := q.Object.Quantities()
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("namespace %s limits %s, and the object cannot be looked at: %v; send it as JSON, YAML or CBOR",
			a.Namespace, a.Resource, err))
	}
	if broken := limitrange.Broken(items, asked.Requests, asked.Limits); len(broken) > 0 {
		return apierrors.NewForbidden(schema.ParseGroupResource(a.Resource), q.Object.Name, fmt.Errorf("%s", strings.Join(broken, ", ")))
	}
	return nil
}
