package writes

import (
	"context"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/internal/gateway/conformance/ask"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/scratch"
)

func checkCreate(ctx context.Context, t *scratch.Target) error {
	a, err := t.Create(ctx, "created", nil, nil)
	if err != nil {
		return err
	}
	o, err := a.Object(http.StatusCreated)
	if err != nil {
		return err
	}
	if o.Name() != t.Named("created") || o.Text("kind") != t.Kind || o.Text("apiVersion") != t.GroupVersion.String() {
		return a.Errorf("the answer is %q, a %q of %q", o.Name(), o.Text("kind"), o.Text("apiVersion"))
	}
	for _, field := range []string{"uid", "creationTimestamp", "resourceVersion"} {
		if o.Text("metadata", field) == "" {
			return a.Errorf("the object has no metadata.%s", field)
		}
	}
	now, err := t.Read(ctx, o.Name())
	if err == nil && now.UID() != o.UID() {
		return a.Errorf("the object has uid %q, and %q when it is read", o.UID(), now.UID())
	}
	return err
}

func checkExists(ctx context.Context, t *scratch.Target) error {
	if _, err := t.Fresh(ctx, "exists"); err != nil {
		return err
	}
	a, err := t.Create(ctx, "exists", nil, nil)
	if err != nil {
		return err
	}
	return a.Refused(metav1.StatusReasonAlreadyExists, http.StatusConflict)
}

func checkGenerateName(ctx context.Context, t *scratch.Target) error {
	prefix := t.Named("generated-")
	a, err := t.Create(ctx, "generated", nil, func(o ask.Object) {
		metadata, _ := o["metadata"].(map[string]any)
		delete(metadata, "name")
		metadata["generateName"] = prefix
	})
	if err != nil {
		return err
	}
	o, err := a.Object(http.StatusCreated)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(o.Name(), prefix) || o.Name() == prefix {
		return a.Errorf("generateName %q gave the name %q", prefix, o.Name())
	}
	return nil
}
