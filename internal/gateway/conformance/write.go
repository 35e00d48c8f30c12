package conformance

import (
	"context"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

func objectChecks() []check {
	return []check{
		{id: "create.metadata", source: conventions + "#metadata", writes: true,
			convention: "a create is 201, and the object has uid, creationTimestamp and resourceVersion", run: onTarget("", checkCreate)},
		{id: "create.exists", source: conventions + "#http-status-codes", writes: true,
			convention: "a create of what exists is 409, AlreadyExists", run: onTarget("", checkExists)},
		{id: "create.generate-name", source: concepts + "#generated-values", writes: true,
			convention: "a name is made from generateName", run: onTarget("", checkGenerateName)},
		{id: "update.metadata", source: conventions + "#metadata", writes: true,
			convention: "an update changes resourceVersion, and neither uid nor creationTimestamp", run: onTarget("update", checkUpdate)},
		{id: "update.conflict", source: conventions + "#concurrency-control-and-consistency", writes: true,
			convention: "an update with an old resourceVersion is 409, Conflict, and changes nothing", run: onTarget("update", checkConflict)},
	}
}

func checkCreate(ctx context.Context, s *session, t *target) error {
	a, err := s.create(ctx, t, "created", nil, nil)
	if err != nil {
		return err
	}
	o, err := a.object(http.StatusCreated)
	if err != nil {
		return err
	}
	if o.name() != s.name("created") || o.text("kind") != t.kind || o.text("apiVersion") != t.gv.String() {
		return a.errorf("the answer is %q, a %q of %q", o.name(), o.text("kind"), o.text("apiVersion"))
	}
	for _, field := range []string{"uid", "creationTimestamp", "resourceVersion"} {
		if o.text("metadata", field) == "" {
			return a.errorf("the object has no metadata.%s", field)
		}
	}
	now, err := s.read(ctx, t, o.name())
	if err != nil {
		return err
	}
	if now.uid() != o.uid() {
		return a.errorf("the object has uid %q, and %q when it is read", o.uid(), now.uid())
	}
	return nil
}

func checkExists(ctx context.Context, s *session, t *target) error {
	if _, err := s.fresh(ctx, t, "exists"); err != nil {
		return err
	}
	a, err := s.create(ctx, t, "exists", nil, nil)
	if err != nil {
		return err
	}
	return a.refused(metav1.StatusReasonAlreadyExists, http.StatusConflict)
}

func checkGenerateName(ctx context.Context, s *session, t *target) error {
	prefix := s.name("generated-")
	a, err := s.create(ctx, t, "generated", nil, func(o object) {
		metadata, _ := o["metadata"].(map[string]any)
		delete(metadata, "name")
		metadata["generateName"] = prefix
	})
	if err != nil {
		return err
	}
	o, err := a.object(http.StatusCreated)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(o.name(), prefix) || o.name() == prefix {
		return a.errorf("generateName %q gave the name %q", prefix, o.name())
	}
	return nil
}

// put puts an object back, with another value of the probe label.
func (s *session) put(ctx context.Context, t *target, o object, probe string) (*answer, error) {
	changed := o.copy()
	labels, _ := changed.at("metadata", "labels").(map[string]any)
	if labels == nil {
		return nil, unsaid("%s has lost its labels", o.name())
	}
	labels[probeLabel] = probe
	return s.write(ctx, http.MethodPut, t.objectPath(t.namespace, o.name()), "", nil, changed)
}

func checkUpdate(ctx context.Context, s *session, t *target) error {
	before, err := s.fresh(ctx, t, "updated")
	if err != nil {
		return err
	}
	a, err := s.put(ctx, t, before, "new")
	if err != nil {
		return err
	}
	after, err := a.object(http.StatusOK)
	if err != nil {
		return err
	}
	order, err := resourceversion.CompareResourceVersion(before.resourceVersion(), after.resourceVersion())
	switch {
	case err != nil:
		return a.errorf("resourceVersion was %q, and is %q: %w", before.resourceVersion(), after.resourceVersion(), err)
	case order >= 0:
		return a.errorf("resourceVersion was %s, and is %s after the change; want a larger one", before.resourceVersion(), after.resourceVersion())
	case before.uid() != after.uid():
		return a.errorf("uid was %s, and is %s", before.uid(), after.uid())
	case before.text("metadata", "creationTimestamp") != after.text("metadata", "creationTimestamp"):
		return a.errorf("creationTimestamp has changed")
	case after.text("metadata", "labels", probeLabel) != "new":
		return a.errorf("the change is not in the answer")
	}
	return nil
}

func checkConflict(ctx context.Context, s *session, t *target) error {
	old, err := s.fresh(ctx, t, "conflict")
	if err != nil {
		return err
	}
	if a, err := s.put(ctx, t, old, "first"); err != nil {
		return err
	} else if _, err := a.object(http.StatusOK); err != nil {
		return unsaid("nothing could be updated: %v", err)
	}
	a, err := s.put(ctx, t, old, "second")
	if err != nil {
		return err
	}
	if a.status == http.StatusOK {
		return a.errorf("the update with the resourceVersion before the last is taken: one of two writers is lost")
	}
	if err := a.refused(metav1.StatusReasonConflict, http.StatusConflict); err != nil {
		return err
	}
	now, err := s.read(ctx, t, old.name())
	if err == nil && now.text("metadata", "labels", probeLabel) != "first" {
		return a.errorf("the object was changed all the same")
	}
	return err
}

func deleteChecks() []check {
	return []check{
		{id: "delete.precondition", source: conventions + "#concurrency-control-and-consistency", writes: true,
			convention: "a delete with another uid is 409, Conflict, and deletes nothing", run: onTarget("", checkPrecondition)},
		{id: "delete.gone", source: conventions + "#verbs-on-resources", writes: true,
			convention: "what was deleted is not there any more", run: onTarget("", checkGone)},
	}
}

func checkPrecondition(ctx context.Context, s *session, t *target) error {
	o, err := s.fresh(ctx, t, "precondition")
	if err != nil {
		return err
	}
	a, err := s.delete(ctx, t, o.name(), "00000000-0000-0000-0000-000000000000", false)
	if err != nil {
		return err
	}
	if err := a.refused(metav1.StatusReasonConflict, http.StatusConflict); err != nil {
		return err
	}
	now, err := s.read(ctx, t, o.name())
	if err == nil && now.uid() != o.uid() {
		return a.errorf("the object was deleted all the same")
	}
	return err
}

func checkGone(ctx context.Context, s *session, t *target) error {
	o, err := s.fresh(ctx, t, "gone")
	if err != nil {
		return err
	}
	a, err := s.delete(ctx, t, o.name(), o.uid(), false)
	if err != nil {
		return err
	}
	if a.status != http.StatusAccepted {
		if _, err := a.object(http.StatusOK); err != nil {
			return err
		}
	}
	// A finalizer may hold it for a while.
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(s.options.RequestTimeout)
	for {
		now, err := s.read(ctx, t, o.name())
		switch {
		case err != nil || now == nil:
			return err
		case now.text("metadata", "deletionTimestamp") == "":
			return a.errorf("the object is still there, and is not being deleted")
		case time.Now().After(deadline):
			return unsaid("%s: finalizers %v held the object longer than was waited", a.request, now.at("metadata", "finalizers"))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
