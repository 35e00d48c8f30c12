package access

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Right is a set of verbs that the controller must be allowed on a resource.
type Right struct {
	API                    *API
	Group, Resource, Scope string // scope is a namespace; "" is all
	Verbs                  []string
}

// Denied asks the API which verbs of a right it denies, and returns them for people;
// "" if it denies none.
func (r Right) Denied(ctx context.Context) (string, error) {
	var denied []string
	for _, verb := range append([]string{"*"}, r.Verbs...) {
		resource, sub, _ := strings.Cut(r.Resource, "/")
		review, err := r.API.Kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: verb, Group: r.Group, Resource: resource, Subresource: sub, Namespace: r.Scope,
			}},
		}, metav1.CreateOptions{})
		switch {
		case err != nil:
			return "", fmt.Errorf("ask %s what this controller may do: %w", r.API.Config.Host, err)
		case verb == "*" && review.Status.Allowed:
			return "", nil
		case verb != "*" && !review.Status.Allowed:
			denied = append(denied, verb)
		}
	}
	if len(denied) == 0 {
		return "", nil
	}
	what := strings.Join(denied, ", ") + " " + r.Resource
	if r.Group != "" {
		what += "." + r.Group
	}
	if r.Scope != "" {
		what += " in namespace " + r.Scope
	}
	return what, nil
}
