// Package objecttest puts what goes wrong between a journal and an object store, for
// tests: faults of the store and of the network, and a clock that runs fast. It
// stands in no program.
package objecttest

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

	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
)

// Fault is what happens to one request.
type Fault int

const (
	Pass          Fault = iota
	Busy                // 409, not applied
	SlowDown            // 503, not applied
	Failed              // 500, not applied
	FailedApplied       // 500, but applied
	Lost                // connection closed, not applied
	LostApplied         // connection closed, but applied
	LandsLate           // connection closed, applied after the next request for the key
	Silent              // no answer, not applied
	SilentApplied       // no answer, but applied
	Cut                 // half of the answer's body
	Flipped             // a bit of the answer's body is wrong
)

var faultNames = []string{"pass", "busy", "slowDown", "failed", "failedApplied", "lost", "lostApplied", "landsLate", "silent", "silentApplied", "cut", "flipped"}

func (f Fault) String() string { return faultNames[f] }

// Dialect is what Faults knows of a kind of store.
type Dialect struct {
	// Call returns what a request does, as GET, PUT or DELETE, and the key of its
	// object; of a listing, the prefix.
	Call func(r *http.Request) (method, key string)
	// Answer sends the store's error for Busy, SlowDown or Failed.
	Answer func(w http.ResponseWriter, kind Fault)
}

// S3 is the dialect of S3.
var S3 = Dialect{
	Call: func(r *http.Request) (method, key string) {
		if r.URL.Query().Has("prefix") {
			return r.Method, r.URL.Query().Get("prefix")
		}
		return r.Method, r.URL.Path
	},
	Answer: func(w http.ResponseWriter, kind Fault) {
		switch kind {
		case Busy:
			Answer(w, http.StatusConflict, "ConditionalRequestConflict")
		case SlowDown:
			Answer(w, http.StatusServiceUnavailable, "SlowDown")
		default:
			Answer(w, http.StatusInternalServerError, "InternalError")
		}
	},
}

// Faults stands between a journal and a store, and does to requests what
// stores and networks do. Beside that it refuses what real stores do
// differently: conditional DELETE, COPY, and a key under another key.
type Faults struct {
	Store http.Handler
	// Plan picks the fault of a request. Nil: Pass. It is not changed while
	// requests are on their way.
	Plan func(r *http.Request) Fault

	dialect  Dialect
	mu       sync.Mutex
	requests map[string]int // by method and key
	keys     map[string]bool
	late     map[string][]func() // PUTs that land after the next request, by key
}

// NewFaults stands before store.
func NewFaults(store http.Handler, dialect Dialect, plan func(r *http.Request) Fault) *Faults {
	return &Faults{Store: store, Plan: plan, dialect: dialect, requests: make(map[string]int), keys: make(map[string]bool), late: make(map[string][]func())}
}

// Count returns how many requests of a method there were, and forgets them.
func (f *Faults) Count(method string) int {
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

func (f *Faults) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if refusal := f.note(r); refusal != "" {
		Answer(w, http.StatusNotImplemented, refusal)
		return
	}
	kind := Pass
	if f.Plan != nil {
		kind = f.Plan(r)
	}
	_, key := f.dialect.Call(r)
	f.serve(w, r, kind, key, body)
	if kind != LandsLate {
		f.land(key)
	}
}

// note counts a request, and says why it is refused, if it is.
func (f *Faults) note(r *http.Request) (refusal string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	method, object := f.dialect.Call(r)
	f.requests[method+" "+object]++
	if r.Method == http.MethodDelete && (r.Header.Get("If-Match") != "" || r.Header.Get("If-None-Match") != "") {
		return "ConditionalDelete"
	}
	if r.Header.Get("X-Amz-Copy-Source") != "" {
		return "Copy"
	}
	if method == http.MethodPut {
		for key := range f.keys {
			if strings.HasPrefix(key, object+"/") || strings.HasPrefix(object, key+"/") {
				return "KeyUnderKey"
			}
		}
		f.keys[object] = true
	}
	return ""
}

func (f *Faults) serve(w http.ResponseWriter, r *http.Request, kind Fault, key string, body []byte) {
	switch kind {
	case Pass:
		f.Store.ServeHTTP(w, r)
	case Busy, SlowDown, Failed:
		f.dialect.Answer(w, kind)
	case FailedApplied:
		f.apply(r)
		f.dialect.Answer(w, Failed)
	case Lost:
		hangUp(w)
	case LostApplied:
		f.apply(r)
		hangUp(w)
	case LandsLate:
		f.mu.Lock()
		clone := r.Clone(r.Context())
		clone.Body = io.NopCloser(bytes.NewReader(body))
		f.late[key] = append(f.late[key], func() { f.apply(clone) })
		f.mu.Unlock()
		hangUp(w)
	case Silent:
		<-r.Context().Done()
	case SilentApplied:
		f.apply(r)
		<-r.Context().Done()
	case Cut, Flipped:
		spoil(w, f.apply(r), kind)
	}
}

// apply carries a request out, also if its client is gone.
func (f *Faults) apply(r *http.Request) *httptest.ResponseRecorder {
	recorder := httptest.NewRecorder()
	f.Store.ServeHTTP(recorder, r.Clone(context.WithoutCancel(r.Context())))
	return recorder
}

// land carries out what was to land late on a key.
func (f *Faults) land(key string) {
	f.mu.Lock()
	landing := f.late[key]
	delete(f.late, key)
	f.mu.Unlock()
	for _, apply := range landing {
		apply()
	}
}

// Answer sends an error of S3.
func Answer(w http.ResponseWriter, status int, code string) {
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
func spoil(w http.ResponseWriter, got *httptest.ResponseRecorder, kind Fault) {
	body := got.Body.Bytes()
	maps.Copy(w.Header(), got.Header())
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(got.Code)
	if kind == Flipped && got.Code == http.StatusOK && len(body) > 0 {
		body[rand.N(len(body))] ^= 1 << rand.N(8)
	}
	if kind == Cut {
		body = body[:len(body)/2]
	}
	_, _ = w.Write(body)
	if kind == Cut {
		panic(http.ErrAbortHandler) // ends the connection, not the program
	}
}

// Sometimes is a plan with each of kinds now and then: kinds of PUT for a
// PUT, and so on. A key meets fewer faults in all than a request has attempts, so
// that each comes through, whatever happens to those of other writers beside it.
func Sometimes(seed uint64, share float64, dialect Dialect) func(*http.Request) Fault {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 0))
	met := make(map[string]int)     // faults, by method and key or prefix
	altered := make(map[string]int) // those that flip a bit: a frame is read three times
	kinds := map[string][]Fault{
		http.MethodPut:    {Busy, SlowDown, Failed, FailedApplied, Lost, LostApplied, LandsLate},
		http.MethodGet:    {SlowDown, Failed, Lost, Cut, Flipped},
		http.MethodDelete: {SlowDown, Failed, FailedApplied, Lost, LostApplied},
	}
	return func(r *http.Request) Fault {
		mu.Lock()
		defer mu.Unlock()
		method, key := dialect.Call(r)
		id := method + " " + key
		if met[id] == bucket.Attempts-1 || random.Float64() >= share {
			return Pass
		}
		met[id]++
		of := kinds[method]
		kind := of[random.IntN(len(of))]
		framed := method == http.MethodGet && (strings.Contains(key, "/journal/") || strings.Contains(key, "/blobs/")) && !r.URL.Query().Has("prefix")
		if kind == Flipped && (!framed || altered[id] == 2) {
			return Cut // only frames have a checksum
		}
		if kind == Flipped {
			altered[id]++
		}
		return kind
	}
}

// First is a plan with the given faults for the first requests of a method
// for keys that contain part.
func First(method, part string, kinds ...Fault) func(*http.Request) Fault {
	var mu sync.Mutex
	return func(r *http.Request) Fault {
		mu.Lock()
		defer mu.Unlock()
		if len(kinds) == 0 || r.Method != method || !strings.Contains(r.URL.Path, part) {
			return Pass
		}
		kind := kinds[0]
		kinds = slices.Clone(kinds[1:])
		return kind
	}
}

// Forward is a handler that passes requests on to the store at endpoint, with
// their signatures intact.
func Forward(t testing.TB, endpoint string) http.Handler {
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
