package reads

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/internal/gateway/conformance/ask"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/check"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/survey"
)

const initialEventsEnd = "k8s.io/initial-events-end"

// checkInitial watches the first object that is still there.
func checkInitial(ctx context.Context, s *survey.Survey, one *survey.Sample) error {
	for _, item := range one.Items {
		err := initial(ctx, s, one, item)
		if err == nil || !s.Missing(ctx, one.Resource, item) {
			return err
		}
	}
	return check.Skipf("its objects go before they can be watched")
}

// initial watches one object, and wants it to be the first event.
func initial(ctx context.Context, s *survey.Survey, one *survey.Sample, item ask.Object) error {
	w, err := s.Client().Watch(ctx, one.Path(item.Namespace()), 2, url.Values{"resourceVersion": {"0"}, "fieldSelector": {"metadata.name=" + item.Name()}})
	if err != nil {
		return err
	}
	defer w.Close()
	e, err := w.Next()
	if errors.Is(err, io.EOF) {
		return w.Errorf("the watch ended, and %q, which is there, did not come", item.Name())
	}
	if err != nil {
		return err
	}
	o := e.Object
	switch {
	case e.Type != "ADDED" || o.Name() != item.Name():
		return w.Errorf("the first event is %s of %q; want ADDED of %q", e.Type, o.Name(), item.Name())
	case o.Text("kind") != one.Kind || o.Text("apiVersion") != one.GroupVersion.String():
		return w.Errorf("the event's object is a %q of %q; want a %q of %q", o.Text("kind"), o.Text("apiVersion"), one.Kind, one.GroupVersion)
	case o.ResourceVersion() == "":
		return w.Errorf("the event's object has no resourceVersion")
	}
	return nil
}

func checkWatchTimeout(ctx context.Context, s *survey.Survey, one *survey.Sample) error {
	version, err := survey.Newest(ctx, s.Client(), one.Resource)
	if err != nil {
		return err
	}
	w, err := s.Client().Watch(ctx, one.Path(""), 1, url.Values{"resourceVersion": {version}})
	if err != nil {
		return err
	}
	defer w.Close()
	for {
		if _, err := w.Next(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func checkBookmarks(ctx context.Context, s *survey.Survey, one *survey.Sample) error {
	w, err := s.Client().Watch(ctx, one.Path(""), 5, url.Values{"sendInitialEvents": {"true"}, "resourceVersionMatch": {"NotOlderThan"}, "allowWatchBookmarks": {"true"}})
	var refused *ask.RefusedError
	if errors.As(err, &refused) && (refused.Answer.Status == http.StatusBadRequest || refused.Answer.Status == http.StatusUnprocessableEntity) {
		return check.Skipf("the server has no sendInitialEvents; clients list before they watch")
	}
	if err != nil {
		return err
	}
	defer w.Close()
	for {
		e, err := w.Next()
		if errors.Is(err, io.EOF) {
			return w.Errorf("the watch ended without a bookmark with the annotation %s", initialEventsEnd)
		}
		if err != nil {
			return err
		}
		if e.Type != "BOOKMARK" {
			continue
		}
		if e.Object.Text("kind") != one.Kind || e.Object.ResourceVersion() == "" {
			return w.Errorf("the bookmark is a %q at resourceVersion %q; want a %q with one", e.Object.Text("kind"), e.Object.ResourceVersion(), one.Kind)
		}
		if e.Object.Text("metadata", "annotations", initialEventsEnd) == "true" {
			return nil
		}
	}
}

// checkExpired watches from the first version that there can be. A server that
// still has that version replays what happened since, which is right as well.
func checkExpired(ctx context.Context, s *survey.Survey, one *survey.Sample) error {
	w, err := s.Client().Watch(ctx, one.Path(""), 1, url.Values{"resourceVersion": {"1"}})
	var refused *ask.RefusedError
	if errors.As(err, &refused) {
		return refused.Answer.Refused(metav1.StatusReasonExpired, http.StatusGone)
	}
	if err != nil {
		return err
	}
	defer w.Close()
	e, err := w.Next()
	if errors.Is(err, io.EOF) {
		if len(one.Items) > 0 {
			return w.Errorf("nothing comes, though objects have been made since; nor does an ERROR")
		}
		return nil
	}
	if err != nil {
		return err
	}
	o := e.Object
	if e.Type == "ERROR" && (o.Text("kind") != "Status" || o.Text("reason") != string(metav1.StatusReasonExpired) || o["code"] != float64(http.StatusGone)) {
		return w.Errorf("the event ERROR holds a %q with reason %q and code %v; want a Status with Expired and 410", o.Text("kind"), o.Text("reason"), o["code"])
	}
	return nil
}
