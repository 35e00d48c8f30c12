package etcdapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/xbernetes/xbernetes/internal/etcdapi"
	"github.com/xbernetes/xbernetes/internal/journal/faultlog"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
)

// askHealth returns the status and body of the answer to a request for /health.
func askHealth(s *etcdapi.Server, method string) (status int, body string) {
	w := httptest.NewRecorder()
	s.ServeHealth(w, httptest.NewRequest(method, "/health", nil))
	return w.Code, strings.TrimSpace(w.Body.String())
}

// TestHealth: /health answers as etcd's does, before, during and after an outage.
func TestHealth(t *testing.T) {
	store, err := faultlog.New(memlog.New(memlog.Options{}).Open(), faultlog.Config{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	r := startReplica(t, store)
	s := etcdapi.New(etcdapi.Config{Replica: r, Logger: testLogger(t)})
	<-r.Ready()
	want := func(when string, status int, body string) {
		t.Helper()
		for got, text := askHealth(s, http.MethodGet); got != status || text != body; got, text = askHealth(s, http.MethodGet) {
			select {
			case <-t.Context().Done():
				t.Fatalf("%s: %d %s, want %d %s", when, got, text, status, body)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	want("at first", http.StatusOK, `{"health":"true","reason":""}`)
	store.SetOutage(true)
	want("during an outage", http.StatusServiceUnavailable, `{"health":"false","reason":"JOURNAL DOES NOT ANSWER"}`)
	store.SetOutage(false)
	want("after it", http.StatusOK, `{"health":"true","reason":""}`)
	if status, _ := askHealth(s, http.MethodPost); status != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", status)
	}
}

// TestWatchesAreCounted: streams, watchers, those behind, and events are counted, and
// forgotten with their stream.
func TestWatchesAreCounted(t *testing.T) { bothWays(t, testWatchesAreCounted) }

func testWatchesAreCounted(t *testing.T, via way) {
	r := startReplica(t, memlog.New(memlog.Options{}).Open())
	s := etcdapi.New(etcdapi.Config{Replica: r, Logger: testLogger(t)})
	c := dial(t, via(t, s))
	for range 3 {
		if _, err := c.Put(t.Context(), "k", "v"); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	fromNow, fromStart := c.Watch(ctx, "other", clientv3.WithCreatedNotify()), c.Watch(ctx, "k", clientv3.WithRev(2))
	<-fromNow
	for seen := 0; seen < 3; {
		seen += len((<-fromStart).Events)
	}
	want := func(want etcdapi.Watches) {
		t.Helper()
		for s.Watches() != want {
			select {
			case <-t.Context().Done():
				t.Fatalf("%+v, want %+v", s.Watches(), want)
			case <-time.After(time.Millisecond):
			}
		}
	}
	want(etcdapi.Watches{Streams: 1, Watchers: 2, Events: 3})
	cancel()
	want(etcdapi.Watches{Events: 3})
}
