// Package scratch makes, changes and removes objects of a run's own. It never
// changes or deletes an object that no run made.
package scratch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/xbernetes/xbernetes/internal/gateway/conformance/ask"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/survey"
)

// leftoverAge is how old a run's object is once the run has surely ended: what
// is older was left by a run that was killed.
const leftoverAge = time.Hour

// A Space is where a run makes its objects. It is for one goroutine.
type Space struct {
	// Target is what objects may be created of; nil if nothing may be created.
	Target *Target
	// Trial is what objects may be created of by dry run; nil if of nothing. It
	// is the Target if there is one.
	Trial *Target
	// Why says why there is no Target.
	Why string

	client    *ask.Client
	mark      survey.Mark
	namespace string
	// made has every object that this run may have created.
	// Invariant: an entry is added before its object is asked for.
	made []made
}

// None is a Space in which nothing may be made.
func None() *Space { return &Space{} }

type made struct {
	of   *Target
	name string
}

// Resource is what objects may be created of; nil if nothing may be.
func (sp *Space) Resource() *survey.Resource {
	if sp.Target == nil {
		return nil
	}
	return &sp.Target.Resource
}

// Prepare chooses what objects to create in the namespace, removes what runs
// that were killed have left there, and creates a few objects. They are like
// object, or ConfigMaps if that is nil. If Prepare fails, it has removed what it
// made.
func Prepare(ctx context.Context, s *survey.Survey, namespace string, object *unstructured.Unstructured) (*Space, error) {
	sp := &Space{client: s.Client(), mark: s.Settings.Mark, namespace: namespace}
	if err := sp.prepare(ctx, s, object); err != nil {
		return nil, errors.Join(err, sp.CleanUp(ctx))
	}
	return sp, nil
}

func (sp *Space) prepare(ctx context.Context, s *survey.Survey, object *unstructured.Unstructured) error {
	if s.Serves("", "namespaces") {
		a, err := sp.client.Get(ctx, ask.Request{Path: "/api/v1/namespaces/" + url.PathEscape(sp.namespace)})
		if err == nil && a.Status == http.StatusNotFound {
			return fmt.Errorf("namespace %q does not exist at %s; create it, or name another", sp.namespace, sp.client)
		}
	}
	if err := sp.chooseTarget(s.Discovery, object); err != nil {
		return err
	}
	if sp.Target == nil {
		sp.Why = "the server has no ConfigMaps, and objects of other kinds may have a cost; give an object that may be created: --object"
		sp.chooseTrial(ctx, s)
		return nil
	}
	sp.Trial = sp.Target
	if err := sp.removeLeftovers(ctx); err != nil {
		return err
	}
	return sp.seed(ctx)
}

// seed creates a few objects, so that there is something to list. If the server
// refuses such an object for its content or its namespace, no check could use it.
func (sp *Space) seed(ctx context.Context) error {
	for _, suffix := range []string{"a", "b", "c"} {
		a, err := sp.Target.Create(ctx, suffix, nil, nil)
		if err != nil {
			return err
		}
		switch a.Status {
		case http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusUnprocessableEntity:
			return fmt.Errorf("create an object to check with: %w; choose another --namespace or --object", a.Is(http.StatusCreated))
		}
	}
	return nil
}

var requiredVerbs = []string{"create", "get", "list", "delete"}

// chooseTarget takes the caller's object, or a ConfigMap if the server has those.
func (sp *Space) chooseTarget(d *survey.Discovery, given *unstructured.Unstructured) error {
	template := ask.Object{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"made-by": "xb gateway validate"}}
	if given != nil {
		template = given.DeepCopy().Object
		delete(template, "status")
	}
	gv, err := schema.ParseGroupVersion(template.Text("apiVersion"))
	if err != nil {
		return fmt.Errorf("read the object to create: %w", err)
	}
	r, ok := d.OfKind(gv.WithKind(template.Text("kind")))
	switch {
	case !ok && given != nil:
		return fmt.Errorf("%s serves no %s of %s, of which an object is given", sp.client, template.Text("kind"), gv)
	case !ok:
		return nil
	case !r.Can(requiredVerbs...):
		return fmt.Errorf("objects of %s cannot be created, read, listed and deleted: it has %v", r, r.Verbs)
	}
	sp.Target = sp.target(r, template)
	return nil
}

// chooseTrial looks for a kind whose minimal object the server accepts by dry
// run. It tries only resources whose OpenAPI says that they have dry runs.
func (sp *Space) chooseTrial(ctx context.Context, s *survey.Survey) {
	const most = 10
	tried := 0
	for _, r := range survey.InTurns(s.Resources) {
		if tried >= most || ctx.Err() != nil {
			return
		}
		if !r.Namespaced || !r.Can(requiredVerbs...) || !s.OpenAPI(ctx).Resources[r.String()].Create["dryRun"] {
			continue
		}
		tried++
		if t := sp.try(ctx, s, r); t != nil {
			sp.Trial = t
			return
		}
	}
}

// try creates a minimal object by dry run; nil if that cannot be done.
func (sp *Space) try(ctx context.Context, s *survey.Survey, r survey.Resource) *Target {
	document, err := s.Document(ctx, r.GroupVersion)
	if err != nil {
		return nil
	}
	template, err := document.Minimal(r.GroupVersionKind())
	if err != nil {
		return nil
	}
	t := sp.target(r, template)
	if a, err := t.Create(ctx, "trial", DryRun(), nil); err != nil || a.Status != http.StatusCreated {
		return nil
	}
	return t
}

func (sp *Space) target(r survey.Resource, template ask.Object) *Target {
	t := &Target{Resource: r, template: template, space: sp}
	if r.Namespaced {
		t.namespace = sp.namespace
	}
	return t
}

// ours reports whether a run made the object.
func ours(o ask.Object) bool {
	return strings.HasPrefix(o.Name(), survey.NamePrefix) && runOf(o) != ""
}

func runOf(o ask.Object) string { return o.Text("metadata", "labels", survey.RunLabel) }

// removeLeftovers deletes what runs that were killed have left.
func (sp *Space) removeLeftovers(ctx context.Context) error {
	items, err := sp.Target.list(ctx, survey.RunLabel)
	if err != nil {
		return fmt.Errorf("look for what earlier runs left: %w", err)
	}
	for _, item := range items {
		at, err := time.Parse(time.RFC3339, item.Text("metadata", "creationTimestamp"))
		if err != nil || time.Since(at) < leftoverAge || !ours(item) {
			continue
		}
		if err := sp.Target.remove(ctx, item.Name()); err != nil {
			return fmt.Errorf("remove what an earlier run left: %w", err)
		}
	}
	return nil
}

// CleanUp removes what this run made, also once ctx has ended.
func (sp *Space) CleanUp(ctx context.Context) error {
	if len(sp.made) == 0 && sp.Target == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 4*sp.client.Timeout())
	defer cancel()
	if err := sp.findMade(ctx); err != nil {
		return err
	}
	var problems []error
	seen := map[string]bool{}
	for _, m := range sp.made {
		path := m.of.path(m.name)
		if seen[path] {
			continue
		}
		seen[path] = true
		if err := m.of.remove(ctx, m.name); err != nil {
			problems = append(problems, fmt.Errorf("remove what was made: %w", err))
		}
	}
	return errors.Join(problems...)
}

// findMade adds the objects of this run whose names the server chose.
func (sp *Space) findMade(ctx context.Context) error {
	if sp.Target == nil {
		return nil
	}
	items, err := sp.Target.list(ctx, survey.RunLabel+"="+string(sp.mark))
	if err != nil {
		return fmt.Errorf("look for what was made, names of which begin with %s: %w", sp.mark.Name(""), err)
	}
	for _, item := range items {
		if ours(item) && runOf(item) == string(sp.mark) {
			sp.made = append(sp.made, made{sp.Target, item.Name()})
		}
	}
	return nil
}
