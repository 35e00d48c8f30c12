// Package apply turns manifests into one transaction, and sends it: all of them are
// applied, and what left the set is deleted, or nothing changes. It knows no kind but
// Namespace, and keeps no state but the apply set's own.
package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/xbernetes/xbernetes/api/transaction/client"
	"github.com/xbernetes/xbernetes/api/transaction/v1alpha1"
)

// Options say what is applied. Files is required.
type Options struct {
	Files     []string // files, folders, or - for standard input
	Recursive bool     // folders with what is in their folders
	Manager   string   // the field manager
	Force     bool     // take fields from other managers
	DryRun    bool
	Diff      bool // the report says what changes
	// Set is the name of the Secret of an apply set. What belonged to the set and is in
	// no manifest any more is deleted. Empty: nothing is deleted.
	Set string
	In  io.Reader // what - reads
}

// Done is what became of one object.
type Done struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	Change     string `json:"change"` // created, changed, unchanged or deleted
	// Diff is what changed, as a unified diff of YAML, if it was asked for.
	Diff string `json:"diff,omitempty"`
}

// name is how kubectl names the object.
func (d Done) name() string { return strings.ToLower(d.Kind) + "/" + d.Name }

// Report is what was done.
type Report struct {
	DryRun          bool   `json:"dryRun,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Objects         []Done `json:"objects"`
}

// WriteText writes the report as kubectl does.
func (r Report) WriteText(w io.Writer) error {
	note := ""
	if r.DryRun {
		note = " (server dry run)"
	}
	for _, d := range r.Objects {
		if _, err := fmt.Fprintf(w, "%s %s%s\n%s", d.name(), d.Change, note, d.Diff); err != nil {
			return err
		}
	}
	return nil
}

// Server is the API server that is meant, and the namespace of objects that say none.
type Server struct {
	Config    *rest.Config
	Namespace string
	Mapper    meta.RESTMapper
	API       dynamic.Interface
}

// Reach returns a Server by its configuration.
func Reach(config *rest.Config, namespace string) (Server, error) {
	found, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return Server{}, err
	}
	api, err := dynamic.NewForConfig(config)
	return Server{config, namespace, restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(found)), api}, err
}

// Apply applies the manifests.
func Apply(ctx context.Context, to Server, o Options) (Report, error) {
	objects, err := read(o, to)
	if err != nil {
		return Report{}, err
	}
	plan, err := planFor(ctx, to, o, objects)
	if err != nil {
		return Report{}, err
	}
	c, err := client.New(to.Config)
	if err != nil {
		return Report{}, err
	}
	status, err := send(ctx, c, plan, o.DryRun)
	if err != nil {
		return Report{}, err
	}
	return report(plan, status, o)
}

// step is an operation, and its object before.
type step struct {
	v1alpha1.Operation
	Done
	before *unstructured.Unstructured // nil: the object was not there
	silent bool                       // is not reported
}

// planFor returns the steps that bring the objects about.
func planFor(ctx context.Context, to Server, o Options, objects []object) ([]step, error) {
	var plan []step
	var set *applySet
	if o.Set != "" {
		var err error
		if set, err = openSet(ctx, to, o, objects); err != nil {
			return nil, err
		}
		plan = append(plan, set.steps...)
	}
	for _, object := range objects {
		if set != nil {
			set.label(object.Unstructured)
		}
		text, err := json.Marshal(object.Unstructured)
		if err != nil {
			return nil, fmt.Errorf("encode %s %q: %w", object.GetKind(), object.GetName(), err)
		}
		before, err := objectBefore(ctx, to, object)
		if err != nil {
			return nil, err
		}
		plan = append(plan, step{
			Operation: v1alpha1.Operation{Verb: v1alpha1.Apply, Object: &runtime.RawExtension{Raw: text}, FieldManager: o.Manager, Force: o.Force},
			Done:      doneTo(*object.Unstructured), before: before,
		})
	}
	if set != nil {
		plan = append(plan, set.prune...)
	}
	if len(plan) > v1alpha1.MaxOperations {
		return nil, fmt.Errorf("%d operations are needed, and a transaction may have %d; apply fewer objects at once", len(plan), v1alpha1.MaxOperations)
	}
	return plan, nil
}

// doneTo names the object that something is done to.
func doneTo(o unstructured.Unstructured) Done {
	return Done{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()}
}

// objectBefore reads an object as it is now; nil if there is none.
func objectBefore(ctx context.Context, to Server, o object) (*unstructured.Unstructured, error) {
	now, err := o.in(to.API).Get(ctx, o.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return now, err
}

func send(ctx context.Context, c *client.Client, plan []step, dryRun bool) (*v1alpha1.TransactionStatus, error) {
	operations := make([]v1alpha1.Operation, len(plan))
	for i, s := range plan {
		operations[i] = s.Operation
	}
	if !dryRun {
		return c.Do(ctx, operations...)
	}
	t, err := c.Create(ctx, &v1alpha1.Transaction{Spec: v1alpha1.TransactionSpec{Operations: operations}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return nil, err
	}
	return &t.Status, nil
}

// report says what became of each object.
func report(plan []step, status *v1alpha1.TransactionStatus, o Options) (Report, error) {
	r := Report{DryRun: o.DryRun, ResourceVersion: status.ResourceVersion}
	for i, s := range plan {
		if s.silent {
			continue
		}
		done, err := s.done(status.Results[i].Object, o.Diff)
		if err != nil {
			return r, fmt.Errorf("read the answer about %s: %w", s.name(), err)
		}
		r.Objects = append(r.Objects, done)
	}
	return r, nil
}

// done says what became of the object of a step, of which the server answered with answer.
func (s step) done(answer *runtime.RawExtension, withDiff bool) (done Done, err error) {
	done = s.Done
	var after *unstructured.Unstructured
	if s.Verb != v1alpha1.Delete && answer != nil {
		after = &unstructured.Unstructured{}
		if err := json.Unmarshal(answer.Raw, after); err != nil {
			return done, err
		}
	}
	switch {
	case s.Verb == v1alpha1.Delete:
		done.Change = "deleted"
	case s.before == nil:
		done.Change = "created"
	case after != nil && s.before.GetResourceVersion() == after.GetResourceVersion():
		done.Change = "unchanged"
	default:
		done.Change = "changed"
	}
	if withDiff && done.Change != "unchanged" {
		done.Diff, err = diff(s.name(), s.before, after)
	}
	return done, err
}
