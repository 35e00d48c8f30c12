package s3log

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/xbernetes/xbernetes/internal/journal/s3log/bucket"
)

// fault is what happens to one request.
type fault int

const (
	pass          fault = iota
	busy                // 409, not applied
	slowDown            // 503, not applied
	failed              // 500, not applied
	failedApplied       // 500, but applied
	lost                // connection closed, not applied
	lostApplied         // connection closed, but applied
	landsLate           // connection closed, applied after the next request for the key
	silent              // no answer, not applied
	silentApplied       // no answer, but applied
	cut                 // half of the answer's body
	flipped             // a bit of the answer's body is wrong
)

var faultNames = []string{"pass", "busy", "slowDown", "failed", "failedApplied", "lost", "lostApplied", "landsLate", "silent", "silentApplied", "cut", "flipped"}

func (f fault) String() string { return faultNames[f] }

// faults stands between a journal and a store, and does to requests what
// stores and networks do. Beside that it refuses what real stores do
// differently: conditional DELETE, COPY, and a key under another key.
type faults struct {
	store http.Handler
	// plan picks the fault of a request. Nil: pass.
	plan func(r *http.Request) fault

	mu       sync.Mutex
	requests map[string]int // by method and key
	keys     map[string]bool
	late     map[string][]func() // PUTs that land after the next request, by key
}

func newFaults(store http.Handler, plan func(r *http.Request) fault) *faults {
	return &faults{store: store, plan: plan, requests: make(map[string]int), keys: make(map[string]bool), late: make(map[string][]func())}
}

// count returns how many requests of a method there were, and forgets them.
func (f *faults) count(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for id, times := range f.requests {
		if strings.HasPrefix(id, method+" ") {
			n += times
			delete(f.requests, id)
		}
	}
	return n
}

func (f *faults) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if refusal := f.note(r); refusal != "" {
		answer(w, http.StatusNotImplemented, refusal)
		return
	}
	kind := pass
	if f.plan != nil {
		kind = f.plan(r)
	}
	f.serve(w, r, kind, body)
	if kind != landsLate {
		f.land(r.URL.Path)
	}
}

// note counts a request, and says why it is refused, if it is.
func (f *faults) note(r *http.Request) (refusal string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests[r.Method+" "+r.URL.Path]++
	if r.Method == http.MethodDelete && (r.Header.Get("If-Match") != "" || r.Header.Get("If-None-Match") != "") {
		return "ConditionalDelete"
	}
	if r.Header.Get("X-Amz-Copy-Source") != "" {
		return "Copy"
	}
	if r.Method == http.MethodPut {
		for key := range f.keys {
			if strings.HasPrefix(key, r.URL.Path+"/") || strings.HasPrefix(r.URL.Path, key+"/") {
				return "KeyUnderKey"
			}
		}
		f.keys[r.URL.Path] = true
	}
	return ""
}

func (f *faults) serve(w http.ResponseWriter, r *http.Request, kind fault, body []byte) {
	switch kind {
	case pass:
		f.store.ServeHTTP(w, r)
	case busy:
		answer(w, http.StatusConflict, "ConditionalRequestConflict")
	case slowDown:
		answer(w, http.StatusServiceUnavailable, "SlowDown")
	case failed:
		answer(w, http.StatusInternalServerError, "InternalError")
	case failedApplied:
		f.apply(r)
		answer(w, http.StatusInternalServerError, "InternalError")
	case lost:
		hangUp(w)
	case lostApplied:
		f.apply(r)
		hangUp(w)
	case landsLate:
		f.mu.Lock()
		clone := r.Clone(r.Context())
		clone.Body = io.NopCloser(bytes.NewReader(body))
		f.late[r.URL.Path] = append(f.late[r.URL.Path], func() { f.apply(clone) })
		f.mu.Unlock()
		hangUp(w)
	case silent:
		<-r.Context().Done()
	case silentApplied:
		f.apply(r)
		<-r.Context().Done()
	case cut, flipped:
		spoil(w, f.apply(r), kind)
	}
}

// apply carries a request out, also if its client is gone.
func (f *faults) apply(r *http.Request) *httptest.ResponseRecorder {
	recorder := httptest.NewRecorder()
	f.store.ServeHTTP(recorder, r.Clone(context.WithoutCancel(r.Context())))
	return recorder
}

// land carries out what was to land late on a key.
func (f *faults) land(key string) {
	f.mu.Lock()
	landing := f.late[key]
	delete(f.late, key)
	f.mu.Unlock()
	for _, apply := range landing {
		apply()
	}
}

func answer(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>by the test</Message></Error>", code)
}

// hangUp closes the connection without an answer.
func hangUp(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		conn.Close()
	}
}

// spoil sends an answer whose body is cut off or altered.
func spoil(w http.ResponseWriter, got *httptest.ResponseRecorder, kind fault) {
	body := got.Body.Bytes()
	maps.Copy(w.Header(), got.Header())
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(got.Code)
	if kind == flipped && got.Code == http.StatusOK && len(body) > 0 {
		body[rand.N(len(body))] ^= 1 << rand.N(8)
	}
	if kind == cut {
		body = body[:len(body)/2]
	}
	_, _ = w.Write(body)
	if kind == cut {
		panic(http.ErrAbortHandler) // ends the connection, not the program
	}
}

// sometimes is a plan with each of kinds now and then: kinds of PUT for a
// PUT, and so on. A key meets fewer faults in all than a request has attempts, so
// that each comes through, whatever happens to those of other writers beside it.
func sometimes(seed uint64, share float64) func(*http.Request) fault {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 0))
	met := make(map[string]int)     // faults, by method and key or prefix
	altered := make(map[string]int) // those that flip a bit: a frame is read three times
	kinds := map[string][]fault{
		http.MethodPut:    {busy, slowDown, failed, failedApplied, lost, lostApplied, landsLate},
		http.MethodGet:    {slowDown, failed, lost, cut, flipped},
		http.MethodDelete: {slowDown, failed, failedApplied, lost, lostApplied},
	}
	return func(r *http.Request) fault {
		mu.Lock()
		defer mu.Unlock()
		id := r.Method + " " + r.URL.Path + " " + r.URL.Query().Get("prefix")
		if met[id] == bucket.Attempts-1 || random.Float64() >= share {
			return pass
		}
		met[id]++
		of := kinds[r.Method]
		kind := of[random.IntN(len(of))]
		framed := strings.Contains(r.URL.Path, slotPrefix) || strings.Contains(r.URL.Path, blobPrefix)
		if kind == flipped && (!framed || altered[id] == 2) {
			return cut // only frames have a checksum
		}
		if kind == flipped {
			altered[id]++
		}
		return kind
	}
}

// first is a plan with the given faults for the first requests of a method
// for keys that contain part.
func first(method, part string, kinds ...fault) func(*http.Request) fault {
	var mu sync.Mutex
	return func(r *http.Request) fault {
		mu.Lock()
		defer mu.Unlock()
		if len(kinds) == 0 || r.Method != method || !strings.Contains(r.URL.Path, part) {
			return pass
		}
		kind := kinds[0]
		kinds = slices.Clone(kinds[1:])
		return kind
	}
}

// forward is a handler that passes requests on to the store at endpoint, with
// their signatures intact.
func forward(t testing.TB, endpoint string) http.Handler {
	target, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host
		},
	}
}
