package gateway

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/bench/front"
)

const sentMark = `"sent":"`

func sinceSent(line []byte) time.Duration {
	_, rest, _ := bytes.Cut(line, []byte(sentMark))
	digits, _, _ := bytes.Cut(rest, []byte(`"`))
	n, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(time.Now().UnixNano() - n)
}

// stub is an API server that answers at once. Below /FIRST/COUNT it has the
// groups gFIRST.example.com and on, COUNT of them; at its root it has g0.
type stub struct {
	*httptest.Server
	mu   sync.Mutex
	hot  map[chan []byte]bool // guarded by mu
	quit chan struct{}
}

func startStub() *stub {
	s := &stub{hot: map[chan []byte]bool{}, quit: make(chan struct{})}
	s.Server = httptest.NewUnstartedServer(s)
	s.EnableHTTP2 = true
	s.StartTLS()
	return s
}

func (s *stub) close() {
	close(s.quit)
	s.CloseClientConnections()
	s.Close()
}

func (s *stub) direct() front.Front {
	return front.Front{Name: "direct", Base: s.URL, Client: s.Client(), Close: func() {}}
}

// ca is the stub's certificate as it stands in a file of servers.
func (s *stub) ca() string {
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

// ServeHTTP implements http.Handler.
func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	first, count, path := 0, 1, r.URL.Path
	if parts := strings.SplitN(path, "/", 4); len(parts) == 4 {
		f, err1 := strconv.Atoi(parts[1])
		c, err2 := strconv.Atoi(parts[2])
		if err1 == nil && err2 == nil {
			first, count, path = f, c, "/"+parts[3]
		}
	}
	w.Header().Set("Content-Type", "application/json")
	segments := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case r.URL.Query().Get("watch") == "true":
		s.watch(w, r, segments[len(segments)-2] == "hot")
	case len(segments) > 4:
		w.Write(widget("w")) //nolint:errcheck // a caller who is gone
	case path == "/apis":
		list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
		for i := first; i < first+count; i++ {
			list.Groups = append(list.Groups, apiGroup(fmt.Sprintf("g%d.example.com", i)))
		}
		json.NewEncoder(w).Encode(list) //nolint:errcheck // a caller who is gone
	case len(segments) == 2 && segments[0] == "apis":
		g := apiGroup(segments[1])
		g.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
		json.NewEncoder(w).Encode(g) //nolint:errcheck // a caller who is gone
	case len(segments) == 3 && segments[0] == "apis":
		json.NewEncoder(w).Encode(metav1.APIResourceList{ //nolint:errcheck // a caller who is gone
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: segments[1] + "/" + segments[2],
			APIResources: []metav1.APIResource{{Name: "widgets", SingularName: "widget", Kind: "Widget", Namespaced: true, Verbs: metav1.Verbs{"get", "list", "watch"}}},
		})
	case path == "/version":
		io.WriteString(w, `{"major":"1","minor":"37","gitVersion":"v1.37.1"}`) //nolint:errcheck // a caller who is gone
	case path == "/readyz", path == "/healthz":
		io.WriteString(w, "ok") //nolint:errcheck // a caller who is gone
	default:
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`) //nolint:errcheck // a caller who is gone
	}
}

func apiGroup(name string) metav1.APIGroup {
	v := metav1.GroupVersionForDiscovery{GroupVersion: name + "/v1", Version: "v1"}
	return metav1.APIGroup{Name: name, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v}
}

// widget is an object of 1 KiB that says when it was sent.
func widget(name string) []byte {
	return fmt.Appendf(nil, `{"kind":"Widget","apiVersion":"g0.example.com/v1","metadata":{"name":%q,"namespace":"default","resourceVersion":"1"},`+sentMark[:7]+`"%d","spec":%q}`,
		name, time.Now().UnixNano(), padding)
}

var padding = strings.Repeat("x", 860)

// watch sends what is emitted, or nothing.
func (s *stub) watch(w http.ResponseWriter, r *http.Request, hot bool) {
	events := make(chan []byte, 1000)
	if hot {
		s.mu.Lock()
		s.hot[events] = true
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			delete(s.hot, events)
			s.mu.Unlock()
		}()
	}
	control := http.NewResponseController(w)
	w.WriteHeader(http.StatusOK)
	for {
		if err := control.Flush(); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-s.quit:
			return
		case e := <-events:
			if _, err := w.Write(e); err != nil {
				return
			}
		}
	}
}

// emit sends so many events a second to each hot watch, until stop is called.
func (s *stub) emit(perSecond int) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		start := time.Now()
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			case <-time.After(time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(perSecond)))):
			}
			e := append(append([]byte(`{"type":"MODIFIED","object":`), widget("w")...), "}\n"...)
			s.mu.Lock()
			for ch := range s.hot {
				select {
				case ch <- e:
				default: // a front that is a second behind loses events, and the rate shows it
				}
			}
			s.mu.Unlock()
		}
	})
	return func() { close(done); wg.Wait() }
}
