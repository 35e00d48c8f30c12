package e2e

import (
	"crypto/sha256"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"sort"
	"strings"
	"sync"
)

// looseStore speaks enough of S3 to be taken for one, and ignores the
// condition of a PUT, as several S3 look-alikes do: the last writer wins.
type looseStore struct {
	mu      sync.Mutex
	objects map[string][]byte // by /bucket/key
}

func (s *looseStore) names() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.objects {
		all = append(all, name)
	}
	sort.Strings(all)
	return all
}

func (s *looseStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if r.Method == http.MethodGet && r.URL.Query().Has("list-type") {
		s.list(w, strings.TrimSuffix(r.URL.Path, "/")+"/", r.URL.Query().Get("prefix"))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	data, there := s.objects[r.URL.Path]
	switch {
	case r.Method == http.MethodPut:
		w.Header().Set("ETag", etag(body))
		s.objects[r.URL.Path] = body
	case r.Method == http.MethodDelete:
		delete(s.objects, r.URL.Path)
		w.WriteHeader(http.StatusNoContent)
	case !there:
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, "<Error><Code>NoSuchKey</Code><Message>no such key</Message></Error>")
	default:
		w.Header().Set("ETag", etag(data))
		_, _ = w.Write(data)
	}
}

// etag is an object's, without which nothing is taken for a store.
func etag(data []byte) string { return fmt.Sprintf("%q", fmt.Sprintf("%x", sha256.Sum256(data))) }

func (s *looseStore) list(w http.ResponseWriter, bucket, prefix string) {
	type object struct{ Key string }
	var answer struct {
		XMLName  xml.Name `xml:"ListBucketResult"`
		Contents []object
	}
	for _, name := range s.names() {
		if strings.HasPrefix(name, bucket+prefix) {
			answer.Contents = append(answer.Contents, object{strings.TrimPrefix(name, bucket)})
		}
	}
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(answer)
}
