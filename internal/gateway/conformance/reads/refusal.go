package reads

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/internal/gateway/conformance/ask"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/survey"
)

func checkNotFound(ctx context.Context, s *survey.Survey, one *survey.Sample) error {
	name, namespace := s.Settings.Mark.NoName(), ""
	if one.Namespaced {
		namespace = "default"
	}
	a, err := s.Client().Get(ctx, ask.Request{Path: one.ObjectPath(namespace, name)})
	if err != nil {
		return err
	}
	if err := a.Refused(metav1.StatusReasonNotFound, http.StatusNotFound); err != nil {
		return err
	}
	status, err := a.Object(http.StatusNotFound)
	if err == nil && status.Text("details", "name") != name {
		return a.Errorf("details.name of the Status is %q; want the name that was asked for", status.Text("details", "name"))
	}
	return err
}

func checkBadRequest(ctx context.Context, s *survey.Survey, one *survey.Sample) error {
	return s.Client().Refused(ctx, listOf(one, "labelSelector", "a in ("), metav1.StatusReasonBadRequest, http.StatusBadRequest)
}

func checkNotAcceptable(ctx context.Context, s *survey.Survey, one *survey.Sample) error {
	request := listOf(one, "limit", "1")
	request.Accept = "application/x-xb-unknown"
	return s.Client().Refused(ctx, request, metav1.StatusReasonNotAcceptable, http.StatusNotAcceptable)
}

func checkUnknownPath(ctx context.Context, s *survey.Survey, one *survey.Sample) error {
	a, err := s.Client().Get(ctx, ask.Request{Path: survey.VersionPath(one.GroupVersion) + "/xbunknowns"})
	if err != nil {
		return err
	}
	if a.Status != http.StatusNotFound && !a.Forbidden() {
		return a.Errorf("want 404, got %d: %s", a.Status, a.Excerpt())
	}
	return nil
}
