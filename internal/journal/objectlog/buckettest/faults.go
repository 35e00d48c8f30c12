package buckettest

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/objecttest"
)

// Driver is a driver of an object store that is reached over HTTP. Each call of Store and
// Journal opens an empty store. A request goes through the handler that between makes of the
// store's, and may take as long as timeout.
type Driver struct {
	Dialect objecttest.Dialect
	Store   func(t *testing.T, between func(http.Handler) http.Handler, timeout time.Duration) (bucket.Store, error)
	Journal func(t *testing.T, between func(http.Handler) http.Handler, timeout time.Duration) (journal.Store, error)
}

// patience is the timeout of requests that need no answer to end, and impatience that of
// tests that wait for silent stores. A machine that is busy with other tests needs seconds.
const (
	patience   = time.Minute
	impatience = 3 * time.Second
)

// RunFaults checks what a driver makes of a store and a network that fail.
func RunFaults(t *testing.T, d Driver) {
	for kind := objecttest.Busy; kind <= objecttest.SilentApplied; kind++ {
		t.Run("CreateIsSentOnce/"+kind.String(), func(t *testing.T) { t.Parallel(); checkSentOnce(t, d, kind) })
		t.Run("Append/"+kind.String(), func(t *testing.T) { t.Parallel(); checkAppend(t, d, kind) })
	}
	t.Run("Upload", func(t *testing.T) { t.Parallel(); checkUpload(t, d) })
	t.Run("NoDate", func(t *testing.T) { t.Parallel(); checkNoDate(t, d) })
}

// checkSentOnce: a Create whose answer is lost, or blames the store, is not sent again by
// the SDK, whatever happened to it: the second one would look lost.
func checkSentOnce(t *testing.T, d Driver, kind objecttest.Fault) {
	var f *objecttest.Faults
	s, err := d.Store(t, func(store http.Handler) http.Handler {
		f = objecttest.NewFaults(store, d.Dialect, func(*http.Request) objecttest.Fault { return kind })
		return f
	}, impatience)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Create(t.Context(), "a", []byte("x"))
	if !bucket.Passing(err) || errors.Is(err, bucket.ErrExists) || errors.Is(err, bucket.ErrConflict) {
		t.Errorf("Create = %v, want an unknown outcome that may be tried again", err)
	}
	if puts := f.Count(http.MethodPut); puts != 1 {
		t.Errorf("%d uploads were sent, want 1", puts)
	}
}

// checkAppend: whatever happens to the first upload, an Append ends stored, and stored once.
func checkAppend(t *testing.T, d Driver, kind objecttest.Fault) {
	var f *objecttest.Faults
	l, err := d.Journal(t, func(store http.Handler) http.Handler {
		f = objecttest.NewFaults(store, d.Dialect, nil)
		return f
	}, impatience)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var met atomic.Bool
	f.Plan = func(r *http.Request) objecttest.Fault {
		if method, key := d.Dialect.Call(r); method == http.MethodPut && strings.Contains(key, "/journal/") && met.CompareAndSwap(false, true) {
			return kind
		}
		return objecttest.Pass
	}
	if err := l.Append(t.Context(), 1, []byte("one")); err != nil {
		t.Fatalf("Append = %v, want nil", err)
	}
	if !met.Load() {
		t.Error("the upload was not recognised, so that nothing failed")
	}
	if err := l.Append(t.Context(), 1, []byte("other")); !errors.Is(err, journal.ErrTaken) {
		t.Errorf("Append over it = %v, want ErrTaken", err)
	}
	if recs, err := l.Read(t.Context(), 1, 5); err != nil || len(recs) != 1 || string(recs[0]) != "one" {
		t.Errorf("Read = %q, %v", recs, err)
	}
}

// checkUpload: the store is told the checksum of what it is sent, so that bytes that were
// altered on the way are refused.
func checkUpload(t *testing.T, d Driver) {
	var altered atomic.Bool
	s, err := d.Store(t, func(store http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if method, _ := d.Dialect.Call(r); method == http.MethodPut {
				sent, err := io.ReadAll(r.Body)
				if err != nil {
					return
				}
				body := strings.Replace(string(sent), "payload", "paxload", 1)
				if body != string(sent) {
					altered.Store(true)
				}
				r.Body = io.NopCloser(strings.NewReader(body))
			}
			store.ServeHTTP(w, r)
		})
	}, patience)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), "a", []byte("the payload")); err == nil || !altered.Load() {
		t.Errorf("Create of bytes that were altered on the way (%v) = %v", altered.Load(), err)
	}
	if held, err := s.Exists(t.Context(), "a"); held || err != nil {
		t.Errorf("Exists = %v, %v; want that nothing was stored", held, err)
	}
}

// checkNoDate: a store that does not say what time it is is refused.
func checkNoDate(t *testing.T, d Driver) {
	_, err := d.Journal(t, func(store http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { store.ServeHTTP(dateless{w}, r) })
	}, patience)
	if err == nil || !strings.Contains(err.Error(), "carry no Date") {
		t.Errorf("Open = %v, want that the answers carry no Date", err)
	}
}

// dateless is an answer without a Date.
type dateless struct{ http.ResponseWriter }

func (d dateless) WriteHeader(status int) {
	d.Header()["Date"] = nil
	d.ResponseWriter.WriteHeader(status)
}
