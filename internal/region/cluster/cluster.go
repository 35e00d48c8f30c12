// Package cluster is one service cluster, reached with a kubeconfig that somebody handed in. The
// cluster is hostile: what it answers is bounded, in bytes and in time, and believed only for
// itself. It never reads where a kubeconfig comes from, and decides nothing.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/internal/kubeconfig"
	"github.com/xbernetes/xbernetes/internal/region/namespace"
)

const (
	callTimeout = 10 * time.Second
	maxAnswer   = 4 << 20 // bytes of one answer
	maxFile     = 1 << 20 // bytes of a kubeconfig
	perSecond   = 50      // requests, and twice as many at once
)

// Cluster is one service cluster.
type Cluster struct {
	kube    kubernetes.Interface
	dynamic dynamic.Interface
}

// Open reads a kubeconfig, which may name no command and no file. It does not connect. The error
// is part of a sentence that names the kubeconfig.
func Open(file []byte) (*Cluster, error) {
	if len(file) > maxFile {
		return nil, fmt.Errorf("is no kubeconfig: it has %d bytes", len(file))
	}
	config, _, err := kubeconfig.Read(file, "", kubeconfig.Inline)
	if err != nil {
		return nil, err
	}
	config.Timeout, config.QPS, config.Burst = callTimeout, perSecond, 2*perSecond
	config.UserAgent, config.WarningHandler = "xb-region-agent", rest.NoWarnings{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return bounded{next} })
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cannot be used: %s", Sentence(err))
	}
	anything, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cannot be used: %s", Sentence(err))
	}
	return &Cluster{kube, anything}, nil
}

// Problem is why a service cluster cannot be used.
type Problem struct {
	// Reachable says whether its API has answered at all.
	Reachable bool
	// Reason is one word in camel case, and Message a sentence.
	Reason, Message string
}

// Probe returns why the cluster cannot be used, or nil if it can.
func (c *Cluster) Probe(ctx context.Context) *Problem {
	var denied []string
	for _, verb := range []string{"get", "create", "delete"} {
		review, err := c.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Resource: "namespaces"}},
		}, metav1.CreateOptions{})
		if err != nil {
			return Explain(err)
		}
		if !review.Status.Allowed {
			denied = append(denied, verb)
		}
	}
	if len(denied) > 0 {
		return &Problem{true, "MissingRights", "the kubeconfig lacks the right to " + strings.Join(denied, ", ") + " namespaces; grant it on the service cluster"}
	}
	return nil
}

// Ensure makes a namespace on the cluster.
func (c *Cluster) Ensure(ctx context.Context, w namespace.Wanted) (namespace.State, error) {
	return namespace.Ensure(ctx, c.kube.CoreV1().Namespaces(), w)
}

// Remove removes a namespace on the cluster, and says whether it is gone.
func (c *Cluster) Remove(ctx context.Context, w namespace.Wanted) (bool, error) {
	return namespace.Remove(ctx, c.kube.CoreV1().Namespaces(), w)
}

// fieldManager owns on a service cluster what a tenant has set.
const fieldManager = "xb-region-agent"

// Definition is the CustomResourceDefinition of this name on the cluster.
func (c *Cluster) Definition(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	return c.dynamic.Resource(definitions).Get(ctx, name, metav1.GetOptions{})
}

// Instance is the instance of this name in a namespace on the cluster.
func (c *Cluster) Instance(ctx context.Context, of schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	return c.dynamic.Resource(of).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
}

// Apply makes an instance on the cluster as it is wanted, in the fields that a tenant has set or
// had set, and returns what it is then. have is the instance that is changed; nil: there is none.
func (c *Cluster) Apply(ctx context.Context, of schema.GroupVersionResource, want, have *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if have != nil {
		want.SetUID(have.GetUID()) // no other is changed that has come in its place
	}
	return c.dynamic.Resource(of).Namespace(want.GetNamespace()).Apply(ctx, want.GetName(), want, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
}

// Delete deletes an instance on the cluster. It may stay for a while.
func (c *Cluster) Delete(ctx context.Context, of schema.GroupVersionResource, have *unstructured.Unstructured) error {
	return c.dynamic.Resource(of).Namespace(have.GetNamespace()).Delete(ctx, have.GetName(), metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(have.GetUID()))})
}

// Explain says what an error of the cluster means.
func Explain(err error) *Problem {
	var status apierrors.APIStatus
	switch answered := errors.As(err, &status); {
	case apierrors.IsUnauthorized(err):
		return &Problem{true, "Unauthorized", "it refuses the credentials of the kubeconfig; renew the Secret"}
	case apierrors.IsForbidden(err):
		return &Problem{true, "MissingRights", "it denies a right: " + Sentence(err)}
	case answered:
		return &Problem{true, "Unwell", "it answers with an error: " + Sentence(err)}
	default:
		return &Problem{false, "Unreachable", "it does not answer: " + Sentence(err)}
	}
}

// Sentence is an error on one short line. The cluster may have worded it.
func Sentence(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	const enough = 240
	if len(line) > enough {
		line = line[:enough] + "…"
	}
	return strings.ToValidUTF8(line, "")
}

// bounded ends answers that are too large to be honest.
type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.next.RoundTrip(r)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, maxAnswer)
	}
	return response, err
}

// WrappedRoundTripper lets clients cancel what is under way.
func (b bounded) WrappedRoundTripper() http.RoundTripper { return b.next }
