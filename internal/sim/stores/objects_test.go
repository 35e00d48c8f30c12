package stores

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/azurelog"
	"github.com/xbernetes/xbernetes/internal/journal/azurelog/azuretest"
	"github.com/xbernetes/xbernetes/internal/journal/gcslog"
	"github.com/xbernetes/xbernetes/internal/journal/gcslog/gcstest"
	"github.com/xbernetes/xbernetes/internal/journal/s3log"
	"github.com/xbernetes/xbernetes/internal/journal/s3log/s3test"
	"github.com/xbernetes/xbernetes/internal/sim"
)

const bucket = "journals"

// onS3 is a journal in a bucket of S3.
func onS3(t *testing.T, cfg *sim.Config) {
	store, clock, err := s3test.New(bucket, 0)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Advance = clock.Advance
	onObjects(t, cfg, store, func(ctx context.Context, endpoint string) (journal.Store, error) {
		return s3log.Open(ctx, s3log.Config{
			Bucket: bucket, Prefix: "j", Endpoint: endpoint, PathStyle: true,
			Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
		})
	})
}

// onGoogle is a journal in a bucket of Google Cloud Storage.
func onGoogle(t *testing.T, cfg *sim.Config) {
	store := newTimed(gcstest.Store(t, bucket))
	store.uploaded = func(r *http.Request) string {
		if r.Method != http.MethodPost {
			return ""
		}
		return r.URL.Query().Get("name")
	}
	store.listed = func(body []byte, at func(key string) time.Time) []byte {
		var list map[string]any
		if json.Unmarshal(body, &list) != nil || list["kind"] != "storage#objects" {
			return body
		}
		items, _ := list["items"].([]any)
		for _, item := range items {
			object := item.(map[string]any)
			object["timeCreated"] = at(object["name"].(string)).Format(time.RFC3339Nano)
		}
		body, _ = json.Marshal(list)
		return body
	}
	cfg.Advance = store.advance
	onObjects(t, cfg, store, func(ctx context.Context, endpoint string) (journal.Store, error) {
		return gcslog.Open(ctx, gcslog.Config{Bucket: bucket, Prefix: "j", Endpoint: endpoint, Anonymous: true})
	})
}

var listedBlob = regexp.MustCompile(`(?s)<Name>([^<]*)</Name>.*?<Last-Modified>([^<]*)</Last-Modified>`)

// onAzure is a journal in a container of Azure Blob Storage.
func onAzure(t *testing.T, cfg *sim.Config) {
	server := azuretest.Shared(t)
	container := server.Container(t)
	store := newTimed(server.Handler())
	store.uploaded = func(r *http.Request) string {
		if r.Method != http.MethodPut {
			return ""
		}
		return strings.TrimPrefix(r.URL.Path, path.Join("/", azuretest.Account, container)+"/")
	}
	store.listed = func(body []byte, at func(key string) time.Time) []byte {
		return listedBlob.ReplaceAllFunc(body, func(blob []byte) []byte {
			found := listedBlob.FindSubmatch(blob)
			return []byte(strings.Replace(string(blob), string(found[2]), at(string(found[1])).UTC().Format(http.TimeFormat), 1))
		})
	}
	cfg.Advance = store.advance
	cfg.Lasts, cfg.Attempt = 2*cfg.Lasts, 3*cfg.Attempt // the emulator answers slowly
	onObjects(t, cfg, store, func(ctx context.Context, endpoint string) (journal.Store, error) {
		return azurelog.Open(ctx, azurelog.Config{Account: azuretest.Account, Container: container, Prefix: "j", Endpoint: endpoint, Key: azuretest.Key})
	})
}

// onObjects gives each machine a way of its own to one store.
func onObjects(t *testing.T, cfg *sim.Config, store http.Handler, open func(ctx context.Context, endpoint string) (journal.Store, error)) {
	serve := func(handler http.Handler) string {
		front := httptest.NewServer(handler)
		t.Cleanup(front.Close)
		return front.URL
	}
	straight := serve(store)
	var mu sync.Mutex
	ways := map[*sim.Machine]string{}
	cfg.Open = func(ctx context.Context) (journal.Store, error) { return open(ctx, straight) }
	cfg.OpenAt = func(ctx context.Context, m *sim.Machine) (journal.Store, error) {
		mu.Lock()
		if ways[m] == "" {
			ways[m] = serve(way{m, store})
		}
		endpoint := ways[m]
		mu.Unlock()
		return open(ctx, endpoint)
	}
}

// trip is how long a request is on its way, so that those who wait for one another do
// not ask without a pause.
const trip = 8 * time.Millisecond

// way is a machine's way to a store.
type way struct {
	m     *sim.Machine
	store http.Handler
}

func (y way) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	select {
	case <-time.After(trip):
	case <-r.Context().Done():
		return
	}
	if !y.m.Await(r.Context()) {
		return
	}
	got := httptest.NewRecorder()
	if r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/probe/") {
		got.Code = http.StatusForbidden // then the store is probed once a machine, not at each start
	} else {
		y.store.ServeHTTP(got, r)
	}
	if !y.m.Await(r.Context()) {
		return
	}
	maps.Copy(rw.Header(), got.Header())
	rw.WriteHeader(got.Code)
	_, _ = rw.Write(got.Body.Bytes()) // a client that is gone
}

// timed is a store with a clock that only advance moves: its answers and its listings have
// the times of that clock.
type timed struct {
	store http.Handler
	// uploaded is the key of the object that a request stores; "" if it stores none.
	uploaded func(r *http.Request) (key string)
	// listed is the body of a listing with the times that at gives; another body as it is.
	listed func(body []byte, at func(key string) time.Time) []byte

	mu      sync.Mutex
	now     time.Time
	written map[string]time.Time // when each object was stored, by this clock
}

func newTimed(store http.Handler) *timed {
	return &timed{store: store, now: time.Now(), written: map[string]time.Time{}}
}

func (s *timed) advance(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(by)
}

func (s *timed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	got := httptest.NewRecorder()
	s.store.ServeHTTP(got, r)
	body, err := io.ReadAll(got.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if key := s.uploaded(r); key != "" && got.Code < 300 {
		s.written[key] = s.now
	}
	if r.Method == http.MethodGet && r.URL.Query().Has("prefix") && got.Code == http.StatusOK {
		body = s.listed(body, s.timeOf)
		got.Header().Del("Content-Length")
	}
	maps.Copy(w.Header(), got.Header())
	w.Header().Set("Date", s.now.UTC().Format(http.TimeFormat))
	w.WriteHeader(got.Code)
	_, _ = w.Write(body) // a client that is gone
}

// timeOf is when an object was stored. One that is being stored is as new as can be. mu is
// held.
func (s *timed) timeOf(key string) time.Time {
	if at, ok := s.written[key]; ok {
		return at
	}
	return s.now
}
