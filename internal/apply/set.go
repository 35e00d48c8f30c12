package apply

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/xbernetes/xbernetes/api/transaction/client"
	"github.com/xbernetes/xbernetes/api/transaction/v1alpha1"
)

// The marks of an apply set, as Kubernetes specifies them (KEP 3659), so that other tools
// see whose objects these are.
const (
	labelID              = "applyset.kubernetes.io/id"
	labelPartOf          = "applyset.kubernetes.io/part-of"
	annotationTooling    = "applyset.kubernetes.io/tooling"
	annotationKinds      = "applyset.kubernetes.io/contains-group-kinds"
	annotationNamespaces = "applyset.kubernetes.io/additional-namespaces"
	tooling              = "xb/v1"
)

var secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// applySet is a set of objects that are applied together, whose parent is a Secret.
type applySet struct {
	id    string
	steps []step // write the parent, if it is as it was read
	prune []step // delete what left the set
}

// openSet reads the set, and finds what left it.
func openSet(ctx context.Context, to Server, o Options, objects []object) (*applySet, error) {
	s := &applySet{id: idOf(to.Namespace, o.Set)}
	parent, err := to.API.Resource(secrets).Namespace(to.Namespace).Get(ctx, o.Set, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		parent = nil
	case err != nil:
		return nil, err
	}
	if err := s.check(parent, to.Namespace, o.Set); err != nil {
		return nil, err
	}
	now := extentOf(objects, to.Namespace)
	if err := s.plan(parent, to.Namespace, o, now); err != nil {
		return nil, err
	}
	return s, s.findPruned(ctx, to, now.with(parent), objects)
}

// idOf is the set's ID, as specified.
func idOf(namespace, name string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{name, namespace, "Secret", ""}, ".")))
	return "applyset-" + base64.RawURLEncoding.EncodeToString(sum[:]) + "-v1"
}

// check refuses a Secret that is no apply set of ours.
func (s *applySet) check(parent *unstructured.Unstructured, namespace, name string) error {
	if parent == nil {
		return nil
	}
	if got := parent.GetLabels()[labelID]; got != s.id {
		return fmt.Errorf("the Secret %s/%s is there, and is no apply set: its label %s is %q; choose another name", namespace, name, labelID, got)
	}
	if got := parent.GetAnnotations()[annotationTooling]; !strings.HasPrefix(got, "xb/") {
		return fmt.Errorf("the apply set %s/%s is kept by %s, and not by xb; use that, or choose another name", namespace, name, got)
	}
	return nil
}

// extent is where the members of a set are: their kinds, and namespaces.
type extent struct {
	kinds      map[schema.GroupKind]bool
	namespaces map[string]bool
	home       string // of the parent
}

func extentOf(objects []object, home string) extent {
	e := extent{map[schema.GroupKind]bool{}, map[string]bool{}, home}
	for _, o := range objects {
		e.kinds[o.kind()] = true
		if o.namespaced() {
			e.namespaces[o.GetNamespace()] = true
		}
	}
	return e
}

// with adds what the parent says that the set had.
func (e extent) with(parent *unstructured.Unstructured) extent {
	all := extent{maps.Clone(e.kinds), maps.Clone(e.namespaces), e.home}
	all.namespaces[e.home] = true
	if parent == nil {
		return all
	}
	for kind := range strings.SplitSeq(parent.GetAnnotations()[annotationKinds], ",") {
		if kind != "" {
			all.kinds[schema.ParseGroupKind(kind)] = true
		}
	}
	for namespace := range strings.SplitSeq(parent.GetAnnotations()[annotationNamespaces], ",") {
		if namespace != "" {
			all.namespaces[namespace] = true
		}
	}
	return all
}

// plan makes the steps that write the parent. They fail if somebody else changed the set
// since it was read.
func (s *applySet) plan(parent *unstructured.Unstructured, namespace string, o Options, now extent) error {
	kinds := make([]string, 0, len(now.kinds))
	for kind := range now.kinds {
		kinds = append(kinds, kind.String())
	}
	slices.Sort(kinds)
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(now.namespaces)), func(n string) bool { return n == now.home })
	text, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "applyset.kubernetes.io/v1",
		"metadata": map[string]any{
			"name": o.Set, "namespace": namespace, "labels": map[string]string{labelID: s.id},
			"annotations": map[string]string{annotationTooling: tooling, annotationKinds: strings.Join(kinds, ","), annotationNamespaces: strings.Join(others, ",")},
		},
	})
	if err != nil {
		return err
	}
	unchanged := client.Absent("v1", "Secret", namespace, o.Set)
	if parent != nil {
		unchanged = client.Unchanged("v1", "Secret", namespace, o.Set, parent.GetResourceVersion())
	}
	s.steps = []step{
		{Operation: unchanged, silent: true},
		{Operation: v1alpha1.Operation{Verb: v1alpha1.Apply, Object: &runtime.RawExtension{Raw: text}, FieldManager: o.Manager, Force: true}, silent: true},
	}
	return nil
}

// label makes object a member.
func (s *applySet) label(object *unstructured.Unstructured) {
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[labelPartOf] = s.id
	object.SetLabels(labels)
}

// findPruned makes the steps that delete the members that are in no manifest.
func (s *applySet) findPruned(ctx context.Context, to Server, where extent, objects []object) error {
	kept := map[string]bool{}
	for _, o := range objects {
		kept[keyOf(o.kind(), o.GetNamespace(), o.GetName())] = true
	}
	kinds := slices.SortedFunc(maps.Keys(where.kinds), func(a, b schema.GroupKind) int { return strings.Compare(a.String(), b.String()) })
	for _, kind := range kinds {
		mapping, err := to.Mapper.RESTMapping(kind)
		if err != nil {
			return fmt.Errorf("find the members of the apply set: %w", err)
		}
		namespaces := []string{""}
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			namespaces = slices.Sorted(maps.Keys(where.namespaces))
		}
		for _, namespace := range namespaces {
			members, err := to.API.Resource(mapping.Resource).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: labelPartOf + "=" + s.id})
			if err != nil {
				return fmt.Errorf("find the members of the apply set: %w", err)
			}
			for _, m := range members.Items {
				if !kept[keyOf(kind, m.GetNamespace(), m.GetName())] && m.GetDeletionTimestamp() == nil {
					s.prune = append(s.prune, deletion(m))
				}
			}
		}
	}
	return nil
}

func keyOf(kind schema.GroupKind, namespace, name string) string {
	return kind.String() + "/" + namespace + "/" + name
}

// deletion deletes exactly that object.
func deletion(m unstructured.Unstructured) step {
	o := client.Delete(m.GetAPIVersion(), m.GetKind(), m.GetNamespace(), m.GetName())
	o.Preconditions = &v1alpha1.Preconditions{UID: m.GetUID()}
	return step{Operation: o, Done: doneTo(m), before: &m}
}
