package conformance

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func listChecks() []check {
	return []check{
		{id: "list.kind", source: conventions + "#types-kinds",
			convention: "a list is of a kind that ends in List, of the group version asked, with metadata and an array items", run: checkListKind},
		{id: "list.items", source: conventions + "#metadata",
			convention: "every object has name, uid, resourceVersion and creationTimestamp, and a namespace if and only if its kind is namespaced", run: checkListItems},
		{id: "list.selectors", source: concepts,
			convention: "label and field selectors leave out what they do not match", run: checkSelectors},
		{id: "get.kind", source: conventions + "#types-kinds",
			convention: "an object is read by its name, in the kind that discovery says", run: checkGet},
	}
}

func checkListKind(ctx context.Context, s *session) finding {
	return each(s.samples, func(one *sample) error {
		list, _, err := s.page(ctx, one.path(""), url.Values{"limit": {"5"}})
		if err != nil {
			return err
		}
		a := &answer{request: request{path: one.path("")}}
		switch {
		case !strings.HasSuffix(list.text("kind"), "List"):
			return a.errorf("the list is of kind %q, which does not end in List", list.text("kind"))
		case list.text("apiVersion") != one.gv.String() && list.text("kind") != "List":
			return a.errorf("the list is of apiVersion %q; want %q", list.text("apiVersion"), one.gv)
		case list["metadata"] == nil:
			return a.errorf("the list has no metadata")
		}
		return nil
	})
}

func checkListItems(_ context.Context, s *session) finding {
	return s.eachFilled(len(s.samples), func(one *sample) error {
		for _, item := range one.items {
			a := &answer{request: request{path: one.path("")}}
			for _, field := range []string{"name", "uid", "resourceVersion", "creationTimestamp"} {
				if item.text("metadata", field) == "" {
					return a.errorf("object %q has no metadata.%s", item.name(), field)
				}
			}
			if (item.namespace() != "") != one.namespaced {
				return a.errorf("object %q has namespace %q, and discovery says namespaced: %t", item.name(), item.namespace(), one.namespaced)
			}
			if k := item.text("kind"); k != "" && k != one.kind {
				return a.errorf("object %q is of kind %q; discovery says %q", item.name(), k, one.kind)
			}
		}
		return nil
	}, "watch")
}

func checkSelectors(ctx context.Context, s *session) finding {
	return s.eachFilled(5, func(one *sample) error {
		for _, query := range []url.Values{
			{"labelSelector": {leftoverLabel + "=none"}, "limit": {"5"}},
			{"fieldSelector": {"metadata.name=" + s.nobody()}, "limit": {"5"}},
		} {
			a, err := s.client.ask(ctx, request{path: one.path(""), query: query})
			if err != nil {
				return err
			}
			list, err := a.object(http.StatusOK)
			if err != nil {
				return err
			}
			if items, err := list.items(); err != nil {
				return a.errorf("%w", err)
			} else if len(items) > 0 {
				return a.errorf("the selector is ignored: it gave %q, which does not match", items[0].name())
			}
		}
		return nil
	})
}

// nobody is a name that no object has.
func (s *session) nobody() string { return namePrefix + s.id + "-none" }

func checkGet(ctx context.Context, s *session) finding {
	return s.eachFilled(len(s.samples), func(one *sample) error {
		gone := unsaid("its objects go before they can be read")
		for _, item := range one.items {
			a, err := s.client.ask(ctx, request{path: one.objectPath(item.namespace(), item.name())})
			if err != nil {
				return err
			}
			if a.status == http.StatusNotFound && one.missing(ctx, s, item) {
				continue
			}
			got, err := a.object(http.StatusOK)
			if err != nil {
				return err
			}
			switch {
			case got.text("kind") != one.kind || got.text("apiVersion") != one.gv.String():
				return a.errorf("it is a %q of %q; discovery says a %q of %q", got.text("kind"), got.text("apiVersion"), one.kind, one.gv)
			case got.name() != item.name() || got.namespace() != item.namespace():
				return a.errorf("it is %q in namespace %q", got.name(), got.namespace())
			case got.uid() != item.uid() && !one.missing(ctx, s, item):
				return a.errorf("its uid is %q, and in the list %q", got.uid(), item.uid())
			}
			return nil
		}
		return gone
	})
}

// missing says that an object that was listed is not there any more.
func (one *sample) missing(ctx context.Context, s *session, item object) bool {
	_, items, err := s.page(ctx, one.path(item.namespace()), url.Values{"fieldSelector": {"metadata.name=" + item.name()}})
	if err != nil {
		return false
	}
	for _, i := range items {
		if i.uid() == item.uid() {
			return false
		}
	}
	return true
}

func statusChecks() []check {
	const ofStatus = conventions + "#response-status-kind"
	return []check{
		{id: "status.not-found", source: ofStatus,
			convention: "an object that is not there is a Status: 404, NotFound, its name in details", run: checkNotFound},
		{id: "status.bad-request", source: ofStatus,
			convention: "a selector that cannot be read is a Status: 400, BadRequest", run: checkBadRequest},
		{id: "status.not-acceptable", source: concepts + "#alternate-representations-of-resources",
			convention: "a media type that is not offered is a Status: 406, NotAcceptable", run: checkNotAcceptable},
		{id: "status.unknown-path", source: conventions + "#http-status-codes",
			convention: "a resource that does not exist is 404", run: checkUnknownPath},
	}
}

func checkNotFound(ctx context.Context, s *session) finding {
	return each(s.samples, func(one *sample) error {
		namespace := ""
		if one.namespaced {
			namespace = "default"
		}
		a, err := s.client.ask(ctx, request{path: one.objectPath(namespace, s.nobody())})
		if err != nil {
			return err
		}
		if err := a.refused(metav1.StatusReasonNotFound, http.StatusNotFound); err != nil {
			return err
		}
		if status, err := a.object(http.StatusNotFound); err != nil {
			return err
		} else if status.text("details", "name") != s.nobody() {
			return a.errorf("details.name of the Status is %q; want the name that was asked for", status.text("details", "name"))
		}
		return nil
	})
}

func checkBadRequest(ctx context.Context, s *session) finding {
	return each(s.some(3), func(one *sample) error {
		a, err := s.client.ask(ctx, request{path: one.path(""), query: url.Values{"labelSelector": {"a in ("}}})
		if err != nil {
			return err
		}
		return a.refused(metav1.StatusReasonBadRequest, http.StatusBadRequest)
	})
}

func checkNotAcceptable(ctx context.Context, s *session) finding {
	return each(s.some(3), func(one *sample) error {
		a, err := s.client.ask(ctx, request{path: one.path(""), query: url.Values{"limit": {"1"}}, accept: "application/x-xb-unknown"})
		if err != nil {
			return err
		}
		return a.refused(metav1.StatusReasonNotAcceptable, http.StatusNotAcceptable)
	})
}

func checkUnknownPath(ctx context.Context, s *session) finding {
	return each(s.some(3), func(one *sample) error {
		a, err := s.client.ask(ctx, request{path: versionPath(one.gv) + "/xbunknowns"})
		if err != nil {
			return err
		}
		if a.status != http.StatusNotFound && !a.forbidden() {
			return a.errorf("want 404, got %d: %s", a.status, a.excerpt())
		}
		return nil
	})
}
