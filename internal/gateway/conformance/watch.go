package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/internal/weight"
)

const initialEventsEnd = "k8s.io/initial-events-end"

func watchChecks() []check {
	const watches = concepts + "#efficient-detection-of-changes"
	return []check{
		{id: "watch.initial", source: watches,
			convention: "a watch from resourceVersion 0 begins with what there is, as events ADDED", run: checkInitial},
		{id: "watch.timeout", source: watches,
			convention: "a watch ends by itself once its timeoutSeconds are over", run: checkWatchTimeout},
		{id: "watch.bookmarks", source: concepts + "#watch-bookmarks",
			convention: "a bookmark is of the watched kind and has a resourceVersion; with sendInitialEvents one says where the initial events end", run: checkBookmarks},
		{id: "watch.expired", source: concepts + "#410-gone-responses",
			convention: "a watch from a version that is gone is 410, Expired, as a response or as an event ERROR", run: checkExpired},
	}
}

// An event is one of a watch.
type event struct {
	Type   string `json:"type"`
	Object object `json:"object"`
}

// A stream is a watch that is open.
type stream struct {
	request request
	body    io.ReadCloser
	decoder *json.Decoder
	stop    context.CancelFunc
}

// watch opens a watch of a collection; the answer is the server's if it
// refuses. The watch may take as long as its timeoutSeconds and one request.
func (s *session) watch(ctx context.Context, path string, seconds int, query url.Values) (*stream, *answer, error) {
	query.Set("watch", "true")
	query.Set("timeoutSeconds", itoa(seconds))
	r := request{path: path, query: query}
	limit := time.Duration(seconds)*time.Second + s.client.timeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the watch did not end within %v, and it was asked to after %d s", limit, seconds))
	resp, err := s.client.send(ctx, r)
	if err != nil {
		err = errors.Join(err, context.Cause(ctx))
		cancel()
		return nil, nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer cancel()
		defer resp.Body.Close()
		body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		return nil, &answer{request: r, status: resp.StatusCode, header: resp.Header, body: body}, err
	}
	body := contextual{resp.Body, ctx}
	return &stream{request: r, body: resp.Body, decoder: json.NewDecoder(weight.NewReader(io.LimitReader(body, mostBytes), mostDecoded)), stop: cancel}, nil, nil
}

// contextual reads, and says why the context ended if it did.
type contextual struct {
	io.Reader
	ctx context.Context
}

func (c contextual) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if cause := context.Cause(c.ctx); err != nil && cause != nil {
		err = cause
	}
	return n, err
}

func (w *stream) close() {
	w.stop()
	w.body.Close()
}

// next waits for an event. io.EOF is the end of the watch.
func (w *stream) next() (event, error) {
	var e event
	if err := w.decoder.Decode(&e); err != nil {
		if errors.Is(err, io.EOF) {
			return e, io.EOF
		}
		return e, fmt.Errorf("%s: read an event: %w", w.request, err)
	}
	switch e.Type {
	case "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR":
		if e.Object != nil {
			return e, nil
		}
	}
	return e, fmt.Errorf("%s: an event has type %q and object %s; want ADDED, MODIFIED, DELETED, BOOKMARK or ERROR, and an object", w.request, e.Type, kindOf(map[string]any(e.Object)))
}

func checkInitial(ctx context.Context, s *session) finding {
	return s.eachFilled(3, func(one *sample) error {
		for _, item := range one.items {
			err := s.initial(ctx, one, item)
			if err == nil {
				return nil
			}
			if !one.missing(ctx, s, item) {
				return err
			}
		}
		return unsaid("its objects go before they can be watched")
	}, "watch")
}

// initial watches one object, which is to come first.
func (s *session) initial(ctx context.Context, one *sample, item object) error {
	w, refusal, err := s.watch(ctx, one.path(item.namespace()), 2, url.Values{"resourceVersion": {"0"}, "fieldSelector": {"metadata.name=" + item.name()}})
	if err != nil {
		return err
	}
	if refusal != nil {
		return refusal.json(http.StatusOK, nil)
	}
	defer w.close()
	e, err := w.next()
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%s: the watch ended, and %q, which is there, did not come", w.request, item.name())
	case err != nil:
		return err
	case e.Type != "ADDED" || e.Object.name() != item.name():
		return fmt.Errorf("%s: the first event is %s of %q; want ADDED of %q", w.request, e.Type, e.Object.name(), item.name())
	case e.Object.text("kind") != one.kind || e.Object.text("apiVersion") != one.gv.String():
		return fmt.Errorf("%s: the event's object is a %q of %q; want a %q of %q", w.request, e.Object.text("kind"), e.Object.text("apiVersion"), one.kind, one.gv)
	case e.Object.resourceVersion() == "":
		return fmt.Errorf("%s: the event's object has no resourceVersion", w.request)
	}
	return nil
}

func checkWatchTimeout(ctx context.Context, s *session) finding {
	return each(s.some(1, "watch"), func(one *sample) error {
		version, err := s.newest(ctx, one)
		if err != nil {
			return err
		}
		w, refusal, err := s.watch(ctx, one.path(""), 1, url.Values{"resourceVersion": {version}})
		if err != nil {
			return err
		}
		if refusal != nil {
			return refusal.json(http.StatusOK, nil)
		}
		defer w.close()
		for {
			if _, err := w.next(); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
		}
	})
}

func checkBookmarks(ctx context.Context, s *session) finding {
	return each(s.some(2, "watch"), func(one *sample) error {
		w, refusal, err := s.watch(ctx, one.path(""), 5, url.Values{"sendInitialEvents": {"true"}, "resourceVersionMatch": {"NotOlderThan"}, "allowWatchBookmarks": {"true"}})
		if err != nil {
			return err
		}
		if refusal != nil {
			if refusal.status == http.StatusBadRequest || refusal.status == http.StatusUnprocessableEntity {
				return unsaid("the server has no sendInitialEvents; clients list before they watch")
			}
			return refusal.json(http.StatusOK, nil)
		}
		defer w.close()
		for {
			e, err := w.next()
			if errors.Is(err, io.EOF) {
				return fmt.Errorf("%s: the watch ended without a bookmark with the annotation %s", w.request, initialEventsEnd)
			}
			if err != nil {
				return err
			}
			if e.Type != "BOOKMARK" {
				continue
			}
			if e.Object.text("kind") != one.kind || e.Object.resourceVersion() == "" {
				return fmt.Errorf("%s: the bookmark is a %q at resourceVersion %q; want a %q with one", w.request, e.Object.text("kind"), e.Object.resourceVersion(), one.kind)
			}
			if e.Object.text("metadata", "annotations", initialEventsEnd) == "true" {
				return nil
			}
		}
	})
}

// checkExpired watches from the first version that can be. A server that still
// has it replays what happened since, and that is well, too.
func checkExpired(ctx context.Context, s *session) finding {
	return each(s.some(1, "watch"), func(one *sample) error {
		w, refusal, err := s.watch(ctx, one.path(""), 1, url.Values{"resourceVersion": {"1"}})
		if err != nil {
			return err
		}
		if refusal != nil {
			return refusal.refused(metav1.StatusReasonExpired, http.StatusGone)
		}
		defer w.close()
		e, err := w.next()
		if errors.Is(err, io.EOF) {
			if len(one.items) > 0 {
				return fmt.Errorf("%s: nothing comes, though objects have been made since; nor does an ERROR", w.request)
			}
			return nil
		}
		if err != nil {
			return err
		}
		if e.Type == "ERROR" && (e.Object.text("kind") != "Status" || e.Object.text("reason") != string(metav1.StatusReasonExpired) || e.Object["code"] != float64(http.StatusGone)) {
			return fmt.Errorf("%s: the event ERROR holds a %q with reason %q and code %v; want a Status with Expired and 410", w.request, e.Object.text("kind"), e.Object.text("reason"), e.Object["code"])
		}
		return nil
	})
}
