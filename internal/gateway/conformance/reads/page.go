package reads

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/xbernetes/xbernetes/internal/gateway/conformance/ask"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/check"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/survey"
)

// several are at most 5 resources with from 2 to 20 objects: larger lists take
// too long to read whole.
func several(s *survey.Survey) ([]*survey.Sample, error) {
	var some []*survey.Sample
	for _, one := range s.Samples {
		if len(one.Items) > 1 && one.Whole {
			some = append(some, one)
		}
	}
	if len(some) == 0 {
		return nil, check.Skipf("no resource that may be listed holds from 2 to 20 objects; check again when one does")
	}
	return some[:min(5, len(some))], nil
}

// checkLimit lists in pages between two whole lists. If these differ, others have
// written meanwhile, and it tries again.
func checkLimit(ctx context.Context, s *survey.Survey, one *survey.Sample) error {
	for range 3 {
		before, err := names(ctx, s, one)
		if err != nil {
			return err
		}
		paged, err := pages(ctx, s, one, (len(before)+1)/2)
		if err != nil {
			return err
		}
		after, err := names(ctx, s, one)
		if err != nil {
			return err
		}
		if !slices.Equal(before, after) {
			continue
		}
		if slices.Sort(paged); !slices.Equal(paged, before) {
			return listOf(one).Errorf("in pages it holds %v, and in one %v", paged, before)
		}
		return nil
	}
	return check.Skipf("it changes all the time")
}

// names are those of all objects, with their namespaces, in order.
func names(ctx context.Context, s *survey.Survey, one *survey.Sample) ([]string, error) {
	_, items, err := s.Client().List(ctx, listOf(one))
	names := namesOf(items)
	slices.Sort(names)
	return names, err
}

func namesOf(items []ask.Object) []string {
	var names []string
	for _, item := range items {
		names = append(names, item.Namespace()+"/"+item.Name())
	}
	return names
}

// pages lists in pages of the size, and returns the names of all objects.
func pages(ctx context.Context, s *survey.Survey, one *survey.Sample, size int) ([]string, error) {
	const most = 50
	var names []string
	request := listOf(one, "limit", strconv.Itoa(size))
	version := ""
	for page := range most {
		list, items, err := s.Client().List(ctx, request)
		if err != nil {
			return nil, err
		}
		names = append(names, namesOf(items)...)
		next := list.Text("metadata", "continue")
		switch {
		case page == 0 && len(items) > size && next == "":
			return nil, check.Skipf("%s: the server gives all at once; it may", request)
		case len(items) > size:
			return nil, request.Errorf("the page holds %d objects", len(items))
		case page > 0 && list.ResourceVersion() != version:
			return nil, request.Errorf("the page is at resourceVersion %q, and the first is at %q", list.ResourceVersion(), version)
		case next == "":
			return names, nil
		}
		version = list.ResourceVersion()
		request.Query.Set("continue", next)
	}
	return nil, listOf(one).Errorf("pages of %d do not end after %d of them", size, most)
}

func checkBadContinue(ctx context.Context, s *survey.Survey, one *survey.Sample) error {
	request := listOf(one, "limit", "1", "continue", "xb-is-no-token")
	return s.Client().Refused(ctx, request, "", http.StatusBadRequest, http.StatusGone)
}
