package policy

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/kubernetes"
)

// newAuthorizer asks the core server, by SubjectAccessReview, and remembers for
// as long as Kubernetes' own delegating servers do.
func newAuthorizer(core kubernetes.Interface, ttl time.Duration) (authorizer.Authorizer, error) {
	return authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: core.AuthorizationV1(),
		AllowCacheTTL:             ttl,
		DenyCacheTTL:              ttl,
		WebhookRetryBackoff:       &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 3},
	}.New()
}

// authorize asks whether the user may create the resource in the namespace. The
// error is one for the caller.
func (g *Guard) authorize(ctx context.Context, u user.Info, a authorizer.AttributesRecord) error {
	a.User, a.ResourceRequest = u, true
	gr := groupResource(a.Resource)
	gr.Group = a.APIGroup
	decision, reason, err := g.authorizer.Authorize(ctx, &a)
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil:
		return apierrors.NewServiceUnavailable(fmt.Sprintf("the gateway cannot ask the core server whether user %q may %s %s in namespace %s: %v; try again",
			u.GetName(), a.Verb, gr, a.Namespace, err))
	}
	message := fmt.Sprintf("User %q cannot %s resource %q in API group %q in the namespace %q", u.GetName(), a.Verb, a.Resource, a.APIGroup, a.Namespace)
	if reason != "" {
		message += ": " + reason
	}
	return apierrors.NewForbidden(gr, a.Name, errors.New(message))
}
