package scratch

import (
	"context"
	"maps"
	"net/http"
	"net/url"

	"github.com/xbernetes/xbernetes/internal/gateway/conformance/ask"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/check"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/survey"
)

// probeLabel has a value that tells versions of an object apart.
const probeLabel = "conformance.xbernetes.io/probe"

// DryRun is the query of a dry run.
func DryRun() url.Values { return url.Values{"dryRun": {"All"}} }

// A Target is a resource of which a run makes objects.
type Target struct {
	survey.Resource
	namespace string // empty if the resource is not namespaced
	template  ask.Object
	space     *Space
}

// Client asks the server.
func (t *Target) Client() *ask.Client { return t.space.client }

// Collection is the path of the objects in the run's namespace.
func (t *Target) Collection() string { return t.Path(t.namespace) }

func (t *Target) path(name string) string { return t.ObjectPath(t.namespace, name) }

// Named is the name of an object of this run.
func (t *Target) Named(suffix string) string { return t.space.mark.Name(suffix) }

// object can be created; it has the probe label unless probe is empty.
func (t *Target) object(suffix, probe string) ask.Object {
	o := t.template.Copy()
	labels := map[string]any{survey.RunLabel: string(t.space.mark)}
	if probe != "" {
		labels[probeLabel] = probe
	}
	metadata := map[string]any{"name": t.Named(suffix), "labels": labels}
	if t.namespace != "" {
		metadata["namespace"] = t.namespace
	}
	if given, ok := o.At("metadata", "annotations").(map[string]any); ok {
		metadata["annotations"] = given
	}
	if given, ok := o.At("metadata", "labels").(map[string]any); ok {
		maps.Copy(given, labels)
		metadata["labels"] = given
	}
	o["metadata"] = metadata
	return o
}

// Probe is the value of an object's probe label.
func Probe(o ask.Object) string { return o.Text("metadata", "labels", probeLabel) }

// note adds an object to those that this run may have created.
func (t *Target) note(suffix string) {
	t.space.made = append(t.space.made, made{t, t.Named(suffix)})
}

// Create creates an object. Before, edit may change it, unless edit is nil.
func (t *Target) Create(ctx context.Context, suffix string, query url.Values, edit func(ask.Object)) (*ask.Answer, error) {
	o := t.object(suffix, "")
	if edit != nil {
		edit(o)
	}
	t.note(suffix)
	return t.Client().Change(ctx, ask.Change{Method: http.MethodPost, Path: t.Collection(), Query: query, Body: o})
}

// Fresh creates an object to do something with. If the server refuses, the error
// is a check.Skipped.
func (t *Target) Fresh(ctx context.Context, suffix string) (ask.Object, error) {
	a, err := t.Create(ctx, suffix, nil, nil)
	if err != nil {
		return nil, err
	}
	o, err := a.Object(http.StatusCreated)
	if err != nil {
		return nil, check.Skipf("nothing could be created: %v", err)
	}
	return o, nil
}

// Apply applies an object on behalf of a manager, by server-side apply. The
// object has the probe label unless probe is empty.
func (t *Target) Apply(ctx context.Context, suffix, manager, probe string, force bool) (*ask.Answer, error) {
	query := url.Values{}
	if manager != "" {
		query.Set("fieldManager", manager)
	}
	if force {
		query.Set("force", "true")
	}
	t.note(suffix)
	return t.Client().Change(ctx, ask.Change{
		Method: http.MethodPatch, Path: t.path(t.Named(suffix)), Query: query, ContentType: ask.ApplyPatch, Body: t.object(suffix, probe),
	})
}

// Read reads an object; nil if it is not there.
func (t *Target) Read(ctx context.Context, name string) (ask.Object, error) {
	a, err := t.Client().Get(ctx, ask.Request{Path: t.path(name)})
	if err != nil {
		return nil, err
	}
	if a.Status == http.StatusNotFound {
		return nil, nil
	}
	return a.Object(http.StatusOK)
}

// list are the objects in the run's namespace that the label selector selects.
func (t *Target) list(ctx context.Context, selector string) ([]ask.Object, error) {
	_, items, err := t.Client().List(ctx, ask.Request{Path: t.Collection(), Query: url.Values{"labelSelector": {selector}}})
	return items, err
}

// Put updates an object to what it is, with another value of the probe label.
func (t *Target) Put(ctx context.Context, o ask.Object, probe string) (*ask.Answer, error) {
	changed := o.Copy()
	labels, _ := changed.At("metadata", "labels").(map[string]any)
	if labels == nil {
		return nil, check.Skipf("%s has lost its labels", o.Name())
	}
	labels[probeLabel] = probe
	return t.Client().Change(ctx, ask.Change{Method: http.MethodPut, Path: t.path(o.Name()), Body: changed})
}

// Patch gives an object another value of the probe label, by a merge patch.
func (t *Target) Patch(ctx context.Context, name, probe string, query url.Values) (*ask.Answer, error) {
	return t.Client().Change(ctx, ask.Change{
		Method: http.MethodPatch, Path: t.path(name), Query: query, ContentType: ask.MergePatch,
		Body: ask.Object{"metadata": map[string]any{"labels": map[string]any{probeLabel: probe}}},
	})
}

// Delete deletes an object, if its uid is the given one or that is empty. The
// options are in the body: if there is a body, Kubernetes ignores the query.
func (t *Target) Delete(ctx context.Context, name, uid string, dry bool) (*ask.Answer, error) {
	options := ask.Object{"apiVersion": "v1", "kind": "DeleteOptions"}
	var query url.Values
	if dry {
		query = DryRun()
		options["dryRun"] = []any{"All"}
	}
	if uid != "" {
		options["preconditions"] = map[string]any{"uid": uid}
	}
	return t.Client().Change(ctx, ask.Change{Method: http.MethodDelete, Path: t.path(name), Query: query, Body: options})
}

// remove deletes an object if a run made it and it is not being deleted.
func (t *Target) remove(ctx context.Context, name string) error {
	o, err := t.Read(ctx, name)
	if err != nil || o == nil || !ours(o) || o.Text("metadata", "deletionTimestamp") != "" {
		return err
	}
	a, err := t.Delete(ctx, name, o.UID(), false)
	if err != nil {
		return err
	}
	if a.Status >= 300 && a.Status != http.StatusNotFound && a.Status != http.StatusConflict {
		return a.Errorf("want it deleted, got %d: %s; delete it yourself", a.Status, a.Excerpt())
	}
	return nil
}
