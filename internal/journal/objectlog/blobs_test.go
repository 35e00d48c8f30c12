package objectlog

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/objecttest"
)

// TestListBlobsIsBounded: of more blobs than a listing may hold, the last are
// listed, and of a folder all or none.
func TestListBlobsIsBounded(t *testing.T) {
	store, clock := clockedStore(t, 0)
	blobs := &listing{store: store, clock: clock, folder: blobPrefix, n: 3 * journal.MaxListed, modified: clock.Now()}
	blobs.name = func(i int) string { return fmt.Sprintf("snapshot!%020d!part-%02d", i/100, i%100) }
	l := mustOpen(t, serve(t, blobs))
	names, err := l.ListBlobs(t.Context(), "snapshot/")
	if err != nil {
		t.Fatal(err)
	}
	if len(names) > journal.MaxListed || len(names) <= journal.MaxListed-100 {
		t.Errorf("%d blobs were listed, want at most %d, and so many but for one folder", len(names), journal.MaxListed)
	}
	if !slices.IsSorted(names) {
		t.Error("the names are not sorted")
	}
	last := blobs.n - 1
	if got, want := names[len(names)-1], fmt.Sprintf("snapshot/%020d/part-%02d", last/100, last%100); got != want {
		t.Errorf("the last name is %s, want %s", got, want)
	}
	if !strings.HasSuffix(names[0], "/part-00") {
		t.Errorf("the first name is %s: the blobs before it in its folder are missing", names[0])
	}
}

// TestBlobsAreCreated: in a bucket that allows a PUT only under the condition that
// the object does not exist, blobs are stored, and none is replaced.
func TestBlobsAreCreated(t *testing.T) {
	store := memoryStore(t)
	l := mustOpen(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && r.Header.Get("If-None-Match") == "" {
			objecttest.Answer(w, http.StatusForbidden, "AccessDenied")
			return
		}
		store.ServeHTTP(w, r)
	})))
	for range 2 { // as after a PUT whose answer was lost
		if err := l.PutBlob(t.Context(), "snapshot/1", []byte("one")); err != nil {
			t.Errorf("PutBlob = %v", err)
		}
	}
	if err := l.PutBlob(t.Context(), "snapshot/1", []byte("another")); !errors.Is(err, bucket.ErrDenied) {
		t.Errorf("PutBlob in place of another = %v, want a denial", err)
	}
	if data, err := l.GetBlob(t.Context(), "snapshot/1"); err != nil || string(data) != "one" {
		t.Errorf("GetBlob = %q, %v, want the first", data, err)
	}
}

// TestBlobReplacesWhereRefusalsAreLost: a store that refuses a PUT before it has read
// the body, and closes the connection, leaves its client without the refusal.
func TestBlobReplacesWhereRefusalsAreLost(t *testing.T) {
	t.Parallel()
	store := memoryStore(t)
	l := mustOpen(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		blob := strings.Contains(r.URL.Path, "snapshot")
		if there := httptest.NewRecorder(); blob && r.Method == http.MethodPut && r.Header.Get("If-None-Match") != "" {
			store.ServeHTTP(there, httptest.NewRequest(http.MethodHead, r.URL.Path, nil))
			if there.Code == http.StatusOK {
				panic(http.ErrAbortHandler) // closes the connection
			}
		}
		store.ServeHTTP(w, r)
	})))
	for _, data := range []string{"one", "another", "another"} {
		if err := l.PutBlob(t.Context(), "snapshot/1", []byte(data)); err != nil {
			t.Fatalf("PutBlob(%s) = %v", data, err)
		}
		if got, err := l.GetBlob(t.Context(), "snapshot/1"); err != nil || string(got) != data {
			t.Errorf("GetBlob = %q, %v, want %q", got, err, data)
		}
	}
}
