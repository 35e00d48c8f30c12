package e2e

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// A hurriedStore is an S3 store in memory whose clock goes on by so much with each record
// that is created, and with nothing else: a writer of that pace, in no time.
type hurriedStore struct {
	store http.Handler
	pace  time.Duration

	mu      sync.Mutex
	now     time.Time
	objects map[string]int64 // what the store holds: length by path
	asked   requests
}

// requests are how many a store was sent.
type requests struct{ puts, gets, lists, deletes int }

// held is what a store holds.
type held struct {
	records, others int
	bytes           int64
}

func newHurriedStore(t *testing.T, pace time.Duration) *hurriedStore {
	t.Helper()
	s := &hurriedStore{pace: pace, now: time.Now(), objects: map[string]int64{}}
	backend := s3mem.New(s3mem.WithTimeSource(s))
	if err := backend.CreateBucket(bucket); err != nil {
		t.Fatal(err)
	}
	s.store = gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog()), gofakes3.WithTimeSource(s), gofakes3.WithTimeSkewLimit(0)).Server()
	return s
}

// Now implements gofakes3.TimeSource.
func (s *hurriedStore) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// Since implements gofakes3.TimeSource.
func (s *hurriedStore) Since(then time.Time) time.Duration { return s.Now().Sub(then) }

func (s *hurriedStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := httptest.NewRecorder()
	s.store.ServeHTTP(answer, r)
	s.note(r, answer.Code)
	maps.Copy(w.Header(), answer.Header())
	w.Header().Set("Date", s.Now().UTC().Format(http.TimeFormat))
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()) // a client that is gone
}

// note counts a request that was answered.
func (s *hurriedStore) note(r *http.Request, code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ok := code < http.StatusMultipleChoices
	switch {
	case r.Method == http.MethodPut:
		s.asked.puts++
		if ok {
			s.objects[r.URL.Path] = r.ContentLength
		}
		if ok && isRecord(r.URL.Path) {
			s.now = s.now.Add(s.pace)
		}
	case r.Method == http.MethodDelete:
		s.asked.deletes++
		if ok {
			delete(s.objects, r.URL.Path)
		}
	case r.URL.Query().Has("list-type"):
		s.asked.lists++
	default:
		s.asked.gets++
	}
}

func isRecord(path string) bool { return strings.Contains(path, "/journal/") }

// look returns what the store holds, and was sent.
func (s *hurriedStore) look() (held, requests) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var h held
	for path, size := range s.objects {
		if isRecord(path) {
			h.records++
		} else {
			h.others++
		}
		h.bytes += size
	}
	return h, s.asked
}
