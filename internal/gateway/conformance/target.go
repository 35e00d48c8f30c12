package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What a run makes has a name that begins with namePrefix and the label
// leftoverLabel, whose value is the run's id. What is this old was left by a
// run that was killed.
const (
	namePrefix    = "xb-conformance-"
	leftoverLabel = "conformance.xbernetes.io/run"
	probeLabel    = "conformance.xbernetes.io/probe"
	leftoverAge   = time.Hour
)

// A target is a resource of which objects may be created, and what they are like.
type target struct {
	resource
	namespace string
	template  object
}

// made is an object that a run may have created.
type made struct {
	on   *target
	name string
}

// prepareWrites chooses what to create, and removes what earlier runs left.
func (s *session) prepareWrites(ctx context.Context) error {
	if s.serves("", "namespaces") {
		a, err := s.client.ask(ctx, request{path: "/api/v1/namespaces/" + url.PathEscape(s.options.Namespace)})
		if err == nil && a.status == http.StatusNotFound {
			return fmt.Errorf("namespace %q does not exist at %s; create it, or name another", s.options.Namespace, s.client)
		}
	}
	if err := s.chooseTarget(); err != nil {
		return err
	}
	if s.target != nil {
		s.trial = s.target
		if err := s.removeLeftovers(ctx); err != nil {
			return err
		}
		return s.seed(ctx)
	}
	s.why = "nothing is created of kinds that nobody vouches for; give one that may be: --object"
	s.chooseTrial(ctx)
	return nil
}

// seed creates a few objects, so that there is something to list. One that the
// server refuses for what it is, or where, could not be used for anything.
func (s *session) seed(ctx context.Context) error {
	for _, suffix := range []string{"a", "b", "c"} {
		a, err := s.create(ctx, s.target, suffix, nil, nil)
		if err != nil {
			return err
		}
		switch a.status {
		case http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusUnprocessableEntity:
			return fmt.Errorf("create an object to check with: %w; choose another --namespace or --object", a.is(http.StatusCreated))
		}
	}
	return nil
}

func (s *session) serves(group, name string) bool {
	return slices.ContainsFunc(s.resources, func(r resource) bool { return r.gv.Group == group && r.name == name })
}

// chooseTarget takes the caller's object, or a ConfigMap if there are any.
func (s *session) chooseTarget() error {
	template := object{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"made-by": "xb gateway validate"}}
	if s.options.Object != nil {
		template = s.options.Object.DeepCopy().Object
		delete(template, "status")
	}
	gv, err := schema.ParseGroupVersion(template.text("apiVersion"))
	if err != nil {
		return fmt.Errorf("read the object to create: %w", err)
	}
	for _, list := range s.lists {
		if list.GroupVersion != gv.String() {
			continue
		}
		for _, r := range resourcesOf(gv, list) {
			if r.kind != template.text("kind") {
				continue
			}
			if !r.can("create", "get", "list", "delete") {
				return fmt.Errorf("objects of %s cannot be created, read, listed and deleted: it has %v", r, r.verbs)
			}
			s.target = s.newTarget(r, template)
			return nil
		}
	}
	if s.options.Object != nil {
		return fmt.Errorf("%s serves no %s of %s, of which an object is given", s.client, template.text("kind"), gv)
	}
	return nil
}

func (s *session) newTarget(r resource, template object) *target {
	t := &target{resource: r, template: template}
	if r.namespaced {
		t.namespace = s.options.Namespace
	}
	return t
}

// chooseTrial looks for a kind whose minimal object is accepted by dry run. It
// tries only what says that it has dry runs.
func (s *session) chooseTrial(ctx context.Context) {
	const most = 10
	tried := 0
	for _, r := range inTurns(s.resources) {
		if tried >= most || ctx.Err() != nil {
			return
		}
		if !r.namespaced || !r.can("create", "get", "list", "delete") || !s.describe(ctx).resources[r.String()].create["dryRun"] {
			continue
		}
		tried++
		document, err := s.openAPIDocument(ctx, s.openapi.urls[r.gv])
		if err != nil {
			continue
		}
		template, err := minimal(document.Components.Schemas, r.gv.WithKind(r.kind))
		if err != nil {
			continue
		}
		t := s.newTarget(r, template)
		a, err := s.create(ctx, t, "trial", dryRun, nil)
		if err == nil && a.status == http.StatusCreated {
			s.trial = t
			return
		}
	}
}

// name is that of an object of this run.
func (s *session) name(suffix string) string { return namePrefix + s.id + "-" + suffix }

// object is one that can be created; probe, if not empty, is a label to tell
// versions apart by.
func (s *session) object(t *target, suffix, probe string) object {
	o := t.template.copy()
	labels := map[string]any{leftoverLabel: s.id}
	if probe != "" {
		labels[probeLabel] = probe
	}
	metadata := map[string]any{"name": s.name(suffix), "labels": labels}
	if t.namespace != "" {
		metadata["namespace"] = t.namespace
	}
	if given, ok := o.at("metadata", "annotations").(map[string]any); ok {
		metadata["annotations"] = given
	}
	if given, ok := o.at("metadata", "labels").(map[string]any); ok {
		maps.Copy(given, labels)
		metadata["labels"] = given
	}
	o["metadata"] = metadata
	return o
}

// write sends an object, or a part of one.
func (s *session) write(ctx context.Context, method, path, contentType string, query url.Values, o object) (*answer, error) {
	body, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("encode an object: %w", err)
	}
	return s.client.ask(ctx, request{method: method, path: path, query: query, contentType: contentType, body: body})
}

// create creates an object, which edit may change before.
func (s *session) create(ctx context.Context, t *target, suffix string, query url.Values, edit func(object)) (*answer, error) {
	o := s.object(t, suffix, "")
	if edit != nil {
		edit(o)
	}
	s.made = append(s.made, made{t, s.name(suffix)})
	return s.write(ctx, http.MethodPost, t.path(t.namespace), "", query, o)
}

// fresh creates an object to do something with.
func (s *session) fresh(ctx context.Context, t *target, suffix string) (object, error) {
	a, err := s.create(ctx, t, suffix, nil, nil)
	if err != nil {
		return nil, err
	}
	o, err := a.object(http.StatusCreated)
	if err != nil {
		return nil, unsaid("nothing could be created: %v", err)
	}
	return o, nil
}

// read reads an object of this run; nil if it is not there.
func (s *session) read(ctx context.Context, t *target, name string) (object, error) {
	a, err := s.client.ask(ctx, request{path: t.objectPath(t.namespace, name)})
	if err != nil {
		return nil, err
	}
	if a.status == http.StatusNotFound {
		return nil, nil
	}
	return a.object(http.StatusOK)
}

// ours says that a run made the object.
func ours(o object) bool {
	return strings.HasPrefix(o.name(), namePrefix) && o.text("metadata", "labels", leftoverLabel) != ""
}

// remove deletes an object that a run made, and no other.
func (s *session) remove(ctx context.Context, t *target, name string) error {
	o, err := s.read(ctx, t, name)
	if err != nil || o == nil || !ours(o) || o.text("metadata", "deletionTimestamp") != "" {
		return err
	}
	a, err := s.delete(ctx, t, name, o.uid(), false)
	if err != nil {
		return err
	}
	if a.status >= 300 && a.status != http.StatusNotFound && a.status != http.StatusConflict {
		return a.errorf("want it deleted, got %d: %s; delete it yourself", a.status, a.excerpt())
	}
	return nil
}

// delete deletes an object, of a uid if there is one. The options are in the
// body: where there is one, Kubernetes does not look at the query.
func (s *session) delete(ctx context.Context, t *target, name, uid string, dry bool) (*answer, error) {
	options := object{"apiVersion": "v1", "kind": "DeleteOptions"}
	var query url.Values
	if dry {
		query = dryRun
		options["dryRun"] = []any{"All"}
	}
	if uid != "" {
		options["preconditions"] = map[string]any{"uid": uid}
	}
	return s.write(ctx, http.MethodDelete, t.objectPath(t.namespace, name), "", query, options)
}

// removeLeftovers deletes what runs that were killed have left.
func (s *session) removeLeftovers(ctx context.Context) error {
	_, items, err := s.page(ctx, s.target.path(s.target.namespace), url.Values{"labelSelector": {leftoverLabel}})
	if err != nil {
		return fmt.Errorf("look for what earlier runs left: %w", err)
	}
	for _, item := range items {
		at, err := time.Parse(time.RFC3339, item.text("metadata", "creationTimestamp"))
		if err != nil || time.Since(at) < leftoverAge || !ours(item) {
			continue
		}
		if err := s.remove(ctx, s.target, item.name()); err != nil {
			return fmt.Errorf("remove what an earlier run left: %w", err)
		}
	}
	return nil
}

// cleanUp removes what this run made, also once ctx has ended.
func (s *session) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 4*s.options.RequestTimeout)
	defer cancel()
	if s.target != nil {
		// Names that the server chose.
		_, items, err := s.page(ctx, s.target.path(s.target.namespace), url.Values{"labelSelector": {leftoverLabel + "=" + s.id}})
		if err != nil {
			return fmt.Errorf("look for what was made, names of which begin with %s: %w", s.name(""), err)
		}
		for _, item := range items {
			if ours(item) && item.text("metadata", "labels", leftoverLabel) == s.id {
				s.made = append(s.made, made{s.target, item.name()})
			}
		}
	}
	var problems []error
	seen := map[string]bool{}
	for _, m := range s.made {
		key := m.on.objectPath(m.on.namespace, m.name)
		if seen[key] {
			continue
		}
		seen[key] = true
		if err := s.remove(ctx, m.on, m.name); err != nil {
			problems = append(problems, fmt.Errorf("remove what was made: %w", err))
		}
	}
	return errors.Join(problems...)
}

// onTarget makes a check of what is done to one object that may be created.
func onTarget(verb string, ask func(context.Context, *session, *target) error) func(context.Context, *session) finding {
	return func(ctx context.Context, s *session) finding {
		if s.target == nil {
			return skip("%s", s.why)
		}
		if verb != "" && !s.target.can(verb) {
			return skip("%s has no %s", s.target, verb)
		}
		f := judge(ask(ctx, s, s.target))
		f.resources = []string{s.target.String()}
		return f
	}
}

// onTrial makes a check that only creates by dry run.
func onTrial(ask func(context.Context, *session, *target) error) func(context.Context, *session) finding {
	return func(ctx context.Context, s *session) finding {
		if s.trial == nil {
			return skip("no kind takes a minimal object by dry run, made from its schema; give one that may be created: --object")
		}
		f := judge(ask(ctx, s, s.trial))
		f.resources = []string{s.trial.String()}
		return f
	}
}
