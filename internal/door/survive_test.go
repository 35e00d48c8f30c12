package door

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestSurvive: a request on which a handler panics is answered and logged, and an answer that
// a handler breaks off stays broken off.
func TestSurvive(t *testing.T) {
	var log strings.Builder
	h := Survive(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/abort" {
			panic(http.ErrAbortHandler)
		}
		panic("a mistake")
	}), slog.New(slog.NewTextHandler(&log, nil)), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/path", nil))
	if w.Code != http.StatusTeapot || !strings.Contains(log.String(), "path=/path") || !strings.Contains(log.String(), "a mistake") {
		t.Errorf("answered with %d, logged %q", w.Code, log.String())
	}
	defer func() {
		if p := recover(); p != any(http.ErrAbortHandler) {
			t.Errorf("a handler that breaks its answer off panics with %v", p)
		}
	}()
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/abort", nil))
}
