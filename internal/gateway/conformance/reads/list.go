package reads

import (
	"context"
	"net/http"
	"strings"

	"github.com/xbernetes/xbernetes/internal/gateway/conformance/ask"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/check"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/survey"
)

func checkListKind(ctx context.Context, s *survey.Survey, one *survey.Sample) error {
	request := listOf(one, "limit", "5")
	list, _, err := s.Client().List(ctx, request)
	if err != nil {
		return err
	}
	kind := list.Text("kind")
	switch {
	case !strings.HasSuffix(kind, "List"):
		return request.Errorf("the list is of kind %q, which does not end in List", kind)
	case list.Text("apiVersion") != one.GroupVersion.String() && kind != "List":
		return request.Errorf("the list is of apiVersion %q; want %q", list.Text("apiVersion"), one.GroupVersion)
	case list["metadata"] == nil:
		return request.Errorf("the list has no metadata")
	}
	return nil
}

func checkListItems(_ context.Context, _ *survey.Survey, one *survey.Sample) error {
	request := listOf(one)
	for _, item := range one.Items {
		for _, field := range []string{"name", "uid", "resourceVersion", "creationTimestamp"} {
			if item.Text("metadata", field) == "" {
				return request.Errorf("object %q has no metadata.%s", item.Name(), field)
			}
		}
		if (item.Namespace() != "") != one.Namespaced {
			return request.Errorf("object %q has namespace %q, and discovery says namespaced: %t", item.Name(), item.Namespace(), one.Namespaced)
		}
		if k := item.Text("kind"); k != "" && k != one.Kind {
			return request.Errorf("object %q is of kind %q; discovery says %q", item.Name(), k, one.Kind)
		}
	}
	return nil
}

func checkSelectors(ctx context.Context, s *survey.Survey, one *survey.Sample) error {
	for _, request := range []ask.Request{
		listOf(one, "labelSelector", survey.RunLabel+"=none", "limit", "5"),
		listOf(one, "fieldSelector", "metadata.name="+s.Settings.Mark.NoName(), "limit", "5"),
	} {
		_, items, err := s.Client().List(ctx, request)
		if err != nil {
			return err
		}
		if len(items) > 0 {
			return request.Errorf("the selector is ignored: it gave %q, which does not match", items[0].Name())
		}
	}
	return nil
}

// checkGet reads the first object that is still there.
func checkGet(ctx context.Context, s *survey.Survey, one *survey.Sample) error {
	for _, item := range one.Items {
		a, err := s.Client().Get(ctx, ask.Request{Path: one.ObjectPath(item.Namespace(), item.Name())})
		if err != nil {
			return err
		}
		if a.Status == http.StatusNotFound && s.Missing(ctx, one.Resource, item) {
			continue
		}
		got, err := a.Object(http.StatusOK)
		if err != nil {
			return err
		}
		switch {
		case got.Text("kind") != one.Kind || got.Text("apiVersion") != one.GroupVersion.String():
			return a.Errorf("it is a %q of %q; discovery says a %q of %q", got.Text("kind"), got.Text("apiVersion"), one.Kind, one.GroupVersion)
		case got.Name() != item.Name() || got.Namespace() != item.Namespace():
			return a.Errorf("it is %q in namespace %q", got.Name(), got.Namespace())
		case got.UID() != item.UID() && !s.Missing(ctx, one.Resource, item):
			return a.Errorf("its uid is %q, and in the list %q", got.UID(), item.UID())
		}
		return nil
	}
	return check.Skipf("its objects go before they can be read")
}
