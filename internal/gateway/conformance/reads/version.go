package reads

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/xbernetes/xbernetes/internal/gateway/conformance/survey"
)

func checkListVersion(ctx context.Context, s *survey.Survey, one *survey.Sample) error {
	request := listOf(one)
	first, err := survey.ListVersion(ctx, s.Client(), one.Resource)
	if err != nil {
		return err
	}
	if first == "" || first == "0" {
		return request.Errorf("metadata.resourceVersion of the list is %q; clients cannot watch from there", first)
	}
	second, err := survey.ListVersion(ctx, s.Client(), one.Resource)
	if err != nil {
		return err
	}
	order, err := resourceversion.CompareResourceVersion(first, second)
	if err != nil {
		return request.Errorf("the list is at %q, and then at %q: %w; clients compare them as numbers", first, second, err)
	}
	if order > 0 {
		return request.Errorf("the list was at %s, and then at %s: time went back", first, second)
	}
	return nil
}

func checkNotOlderThan(ctx context.Context, s *survey.Survey, one *survey.Sample) error {
	version, err := survey.Newest(ctx, s.Client(), one.Resource)
	if err != nil {
		return err
	}
	request := listOf(one, "resourceVersion", version, "resourceVersionMatch", "NotOlderThan", "limit", "1")
	list, err := s.Client().Object(ctx, request)
	if err != nil {
		return err
	}
	order, err := resourceversion.CompareResourceVersion(version, list.ResourceVersion())
	if err != nil || order > 0 {
		return request.Errorf("the list is at %q, which is not %s or newer", list.ResourceVersion(), version)
	}
	return nil
}

func checkExact(ctx context.Context, s *survey.Survey, one *survey.Sample) error {
	version, err := survey.Newest(ctx, s.Client(), one.Resource)
	if err != nil {
		return err
	}
	a, err := s.Client().Get(ctx, listOf(one, "resourceVersion", version, "resourceVersionMatch", "Exact", "limit", "1"))
	if err != nil {
		return err
	}
	if a.Status == http.StatusGone {
		return a.Refused(metav1.StatusReasonExpired, http.StatusGone)
	}
	list, err := a.Object(http.StatusOK)
	if err == nil && list.ResourceVersion() != version {
		return a.Errorf("the list is at %q", list.ResourceVersion())
	}
	return err
}

func checkTooNew(ctx context.Context, s *survey.Survey, one *survey.Sample) error {
	version, err := survey.Newest(ctx, s.Client(), one.Resource)
	if err != nil {
		return err
	}
	// Three digits more: no server gets there while it is being asked.
	request := listOf(one, "resourceVersion", version+"000", "resourceVersionMatch", "NotOlderThan", "limit", "1")
	return s.Client().Refused(ctx, request, metav1.StatusReasonTimeout, http.StatusGatewayTimeout)
}

func checkMatchAlone(ctx context.Context, s *survey.Survey, one *survey.Sample) error {
	request := listOf(one, "resourceVersionMatch", "NotOlderThan", "limit", "1")
	return s.Client().Refused(ctx, request, "", http.StatusBadRequest, http.StatusUnprocessableEntity)
}
