package objectlog

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/objecttest"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/probe"
	"github.com/xbernetes/xbernetes/internal/journal/s3log/s3bucket"
)

// The stores below break one promise each; the probe must say which.

// ignoresCondition answers every PUT as if it had no condition.
func ignoresCondition(store http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("If-None-Match")
		store.ServeHTTP(w, r)
	})
}

// checksThenWrites looks whether the key is there, and then writes: two that
// look at once both write. It makes two look at once.
func checksThenWrites(store http.Handler) http.Handler {
	var mu sync.Mutex
	looked := make(map[string]int)
	both := make(map[string]chan struct{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPut || r.Header.Get("If-None-Match") == "" || !strings.Contains(r.URL.Path, probe.Folder) {
			store.ServeHTTP(w, r)
			return
		}
		mu.Lock()
		look := httptest.NewRecorder()
		store.ServeHTTP(look, httptest.NewRequest(http.MethodGet, r.URL.Path, nil))
		if look.Code == http.StatusOK {
			mu.Unlock()
			objecttest.Answer(w, http.StatusPreconditionFailed, "PreconditionFailed")
			return
		}
		looked[r.URL.Path]++
		wait, ok := both[r.URL.Path]
		if !ok {
			wait = make(chan struct{})
			both[r.URL.Path] = wait
		}
		if looked[r.URL.Path] == 2 {
			close(wait)
		}
		mu.Unlock()
		<-wait
		r.Header.Del("If-None-Match")
		mu.Lock()
		defer mu.Unlock()
		store.ServeHTTP(w, r)
	})
}

// refusesButWrites tells the losers that they lost, and stores their bytes.
func refusesButWrites(store http.Handler) http.Handler {
	var mu sync.Mutex
	won := make(map[string]bool)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPut || r.Header.Get("If-None-Match") == "" {
			store.ServeHTTP(w, r)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		r.Header.Del("If-None-Match")
		store.ServeHTTP(httptest.NewRecorder(), r)
		if won[r.URL.Path] {
			objecttest.Answer(w, http.StatusPreconditionFailed, "PreconditionFailed")
			return
		}
		won[r.URL.Path] = true
		w.Header().Set("ETag", `"an etag"`)
	})
}

// forgets says that it stored what it did not store.
func forgets(store http.Handler) http.Handler {
	var mu sync.Mutex
	won := make(map[string]bool)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPut {
			store.ServeHTTP(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		defer mu.Unlock()
		if won[r.URL.Path] {
			objecttest.Answer(w, http.StatusPreconditionFailed, "PreconditionFailed")
			return
		}
		won[r.URL.Path] = true
		w.Header().Set("ETag", `"an etag"`)
	})
}

// doesNotKnow answers that it has no conditional PUT.
func doesNotKnow(store http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") != "" {
			objecttest.Answer(w, http.StatusNotImplemented, "NotImplemented")
			return
		}
		store.ServeHTTP(w, r)
	})
}

func TestProbeRefusesBrokenStores(t *testing.T) {
	for name, test := range map[string]struct {
		break_ func(http.Handler) http.Handler
		want   string
	}{
		"ignores the condition":    {ignoresCondition, "of 8 writers that created one key at once, 8 were told that they won"},
		"checks, then writes":      {checksThenWrites, "were told that they won, and only one may"},
		"refuses, but writes":      {refusesButWrites, "is not the one whose bytes are stored"},
		"forgets":                  {forgets, "an object that was just written is not there"},
		"knows no conditional PUT": {doesNotKnow, "it does not know PUT with If-None-Match: *"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := memoryStore(t)
			cfg := serve(t, test.break_(store))
			_, err := openS3(t.Context(), cfg)
			if !errors.Is(err, bucket.ErrUnfit) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Open = %v, want it to say %q", err, test.want)
			}
			if left := keys(t, serve(t, store)); len(left) != 0 {
				t.Errorf("the refused journal left %q", left)
			}
		})
	}
}

// TestProbeWithFaults: trouble that passes is no broken promise.
func TestProbeWithFaults(t *testing.T) {
	store := memoryStore(t)
	for seed := range uint64(20) {
		cfg := serve(t, objecttest.NewFaults(store, objecttest.S3, objecttest.Sometimes(seed, 0.3, objecttest.S3)))
		l, err := openS3(t.Context(), cfg)
		if err != nil {
			t.Errorf("seed %d: Open = %v", seed, err)
			continue
		}
		_ = l.Close()
	}
	if left := keys(t, serve(t, store)); len(left) != 1 {
		t.Errorf("probing left %q, want %s only", left, metaName)
	}
}

// TestProbeWithoutDelete: where deleting is denied, the probe does not fill
// the bucket with each start.
func TestProbeWithoutDelete(t *testing.T) {
	store := memoryStore(t)
	denies := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			objecttest.Answer(w, http.StatusForbidden, "AccessDenied")
			return
		}
		store.ServeHTTP(w, r)
	})
	cfg := serve(t, denies)
	mustOpen(t, cfg)
	after := len(keys(t, cfg))
	for range 5 {
		mustOpen(t, cfg)
	}
	if now := len(keys(t, cfg)); now != after {
		t.Errorf("five more starts grew the bucket from %d to %d objects", after, now)
	}
}

// keys lists all keys of a store, whatever the journal's prefix.
func keys(t *testing.T, cfg Config) (names []string) {
	t.Helper()
	cfg.Prefix = ""
	cfg.Credentials = credentials.NewStaticCredentialsProvider("key", "secret", "")
	b, err := s3bucket.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	page, err := b.List(t.Context(), "", "", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range page.Objects {
		names = append(names, object.Name)
	}
	return names
}
