package regions

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/xbernetes/xbernetes/test/lab/wait"
)

// What is read here is what the regions have stored, as plain JSON. Nothing of the product takes
// part in judging it.

// claim is a key's object in one region.
type claim struct {
	version string
	key     string // KIND NAME
	phase   string
	owner   string // the ID of the operation that created the name
	home    string // of the owner
}

// owned says whether the claim shows its region that the key has an owner.
func (c claim) owned() bool {
	return c.phase == "Held" || c.phase == "Real" || c.phase == "Marked" || c.phase == "FrozenMark"
}

// operation is the record of one operation.
type operation struct {
	id, verb, key, state, target string
}

func (s *server) list(ctx context.Context, resource string) ([]unstructured.Unstructured, error) {
	kind := schema.GroupVersionResource{Group: "region.xbernetes.io", Version: "v1alpha1", Resource: resource}
	all, err := s.dynamic.Resource(kind).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list %s in %s: %w", resource, s.name, err)
	}
	return all.Items, nil
}

func text(o unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(o.Object, path...)
	return s
}

func keyOf(o unstructured.Unstructured) string {
	return text(o, "spec", "key", "kind") + " " + text(o, "spec", "key", "name")
}

// claims are all claims of a region, by their keys.
func (s *server) claims(ctx context.Context) (map[string]claim, error) {
	items, err := s.list(ctx, "claims")
	if err != nil {
		return nil, err
	}
	all := map[string]claim{}
	for _, o := range items {
		all[keyOf(o)] = claim{o.GetResourceVersion(), keyOf(o), text(o, "spec", "phase"), text(o, "spec", "owner", "operation"), text(o, "spec", "owner", "home")}
	}
	return all, nil
}

// operations are the records whose home is this region, by their IDs.
func (s *server) operations(ctx context.Context) (map[string]operation, error) {
	items, err := s.list(ctx, "operations")
	if err != nil {
		return nil, err
	}
	all := map[string]operation{}
	for _, o := range items {
		all[o.GetName()] = operation{o.GetName(), text(o, "spec", "verb"), keyOf(o), text(o, "spec", "state"), text(o, "spec", "target")}
	}
	return all, nil
}

// snapshot is what a reading has found, by region and key. A region that did not answer, or was
// removed, is absent.
type snapshot map[string]map[string]claim

func (w *world) snapshot(ctx context.Context) snapshot {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	found := snapshot{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for name, s := range w.regions {
		all.Go(func() {
			if claims, err := s.claims(ctx); err == nil && (name != removable || !w.removed.Load()) {
				mu.Lock()
				found[name] = claims
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return found
}

// stood is what was there, in all regions at one moment, between two readings: the claims that
// both have found at the same version.
func stood(before, after snapshot) snapshot {
	both := snapshot{}
	for region, claims := range before {
		both[region] = map[string]claim{}
		for key, c := range claims {
			if after[region][key].version == c.version {
				both[region][key] = c
			}
		}
	}
	return both
}

// rivals are two owners of one key; "" if no key has two.
func rivals(s snapshot) string {
	owners := map[string]claim{}
	for _, region := range slices.Sorted(maps.Keys(s)) {
		for key, c := range s[region] {
			first, ok := owners[key]
			switch {
			case !c.owned():
			case ok && first.owner != c.owner:
				return fmt.Sprintf("%s has two owners: %+v and, in %s, %+v", key, first, region, c)
			default:
				owners[key] = c
			}
		}
	}
	return ""
}

// observe reads all regions again and again until ctx ends, and returns how often it compared two
// readings, and the first key with two owners.
func (w *world) observe(ctx context.Context) (compared int, found string) {
	before := w.snapshot(ctx)
	for wait.For(ctx, 20*time.Millisecond) == nil { // it leaves the processors to others
		after := w.snapshot(ctx)
		if found = rivals(stood(before, after)); found != "" {
			return compared, found
		}
		compared++
		before = after
	}
	return compared, ""
}

// whole says which key is half done, or differs between the regions; "" if none.
func (w *world) whole(s snapshot) string {
	keys := map[string]bool{}
	for region := range w.regions {
		if s[region] == nil {
			return region + " does not answer"
		}
		for key := range s[region] {
			keys[key] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		first := s["paris"][key]
		for region := range w.regions {
			c := s[region][key]
			want := "Held"
			if region == c.home && !w.homeless(c) {
				want = "Real"
			}
			if c.owner == "" || c.owner != first.owner || c.phase != want {
				return fmt.Sprintf("%s is half done: paris has %+v, and %s has %+v", key, first, region, c)
			}
		}
	}
	return ""
}

// homeless says whether the claim's owner was created in a region before that was removed.
func (w *world) homeless(c claim) bool {
	_, was := w.void[c.owner]
	return was
}

// names are those of a kind that have an owner, with the owner's operation.
func names(claims map[string]claim, kind string) map[string]string {
	all := map[string]string{}
	for key, c := range claims {
		if name, ok := strings.CutPrefix(key, kind+" "); ok && c.owned() {
			all[name] = c.owner
		}
	}
	return all
}
