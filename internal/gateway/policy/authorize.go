package policy

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/client-go/kubernetes"
)

// newAuthorizer makes an authorizer that asks the core server by
// SubjectAccessReview, and remembers each answer for ttl.
func newAuthorizer(core kubernetes.Interface, ttl time.Duration) (authorizer.Authorizer, error) {
	return authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: core.AuthorizationV1(),
		AllowCacheTTL:             ttl,
		DenyCacheTTL:              ttl,
		WebhookRetryBackoff:       &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 3},
	}.New()
}

// authorize asks whether a user may do something. The error is meant for the
// caller, and has Kubernetes' own words.
func (g *Guard) authorize(ctx context.Context, a authorizer.AttributesRecord) error {
	decision, reason, err := g.authorizer.Authorize(ctx, &a)
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil:
		return apierrors.NewServiceUnavailable(fmt.Sprintf("the gateway cannot ask the core server whether user %q may %s %s: %v; try again",
			a.User.GetName(), a.Verb, a.Path, err))
	}
	return responsewriters.ForbiddenStatusError(&a, reason)
}
