package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/test/lab/network"
	"github.com/xbernetes/xbernetes/test/lab/process"
)

const (
	gatewayRate   = 500   // requests a second
	idleWatches   = 1_000 // that get nothing
	hotWatches    = 10    // that share gatewayEvents
	gatewayEvents = 5_000 // events a second
	manyServers   = 100
	groupsOfEach  = 5
	widgetsPath   = "/apis/g0.example.com/v1/namespaces/"
)

// A front is a way to the stub: direct, or through something.
type front struct {
	name    string
	base    string
	client  *http.Client
	servers []*process.Process
	close   func()
}

// gateway measures what a gateway adds to a server that answers at once: the
// stub, in this process, asked directly, through xb gateway, and through the
// aggregator of a kube-apiserver on etcd. Both know callers by certificates and
// the stub by front-proxy headers over mTLS.
func gateway(ctx context.Context, cfg config) ([]comparison, error) {
	dir := filepath.Join(cfg.dir, "gateway")
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	s := startStub()
	defer s.close()
	fronts := []front{s.direct()}
	defer func() {
		for _, f := range fronts {
			f.close()
		}
	}()
	for _, start := range []func(context.Context, config, string, *stub) (front, error){startGateway, startAggregator} {
		f, err := start(ctx, cfg, dir, s)
		if err != nil {
			return nil, err
		}
		fronts = append(fronts, f)
	}
	names := []string{fronts[0].name, fronts[1].name, fronts[2].name}
	gets := newComparison(fmt.Sprintf("get, 1 KiB, %d a second", gatewayRate), names...)
	events := newComparison(fmt.Sprintf("%d events a second to %d watches, beside %d idle", gatewayEvents, hotWatches, idleWatches), names...)
	start := newComparison(fmt.Sprintf("launch to discovery of %d servers with %d groups", manyServers, manyServers*groupsOfEach), fronts[1].name)
	rows := []*comparison{gets, events, start}
	for round := range cfg.rounds {
		for _, f := range fronts {
			fmt.Fprintf(os.Stderr, "gateway: round %d, %s\n", round+1, f.name)
			m, err := f.gets(ctx, widgetsPath+"default/widgets/w", max(1, int(10*gatewayRate*cfg.scale)))
			if err != nil {
				return values(rows), fmt.Errorf("get, %s: %w", f.name, err)
			}
			gets.add(f.name, m)
			if m, err = f.events(ctx, s, time.Duration(10*cfg.scale*float64(time.Second))); err != nil {
				return values(rows), fmt.Errorf("watch, %s: %w", f.name, err)
			}
			events.add(f.name, m)
		}
		m, err := startMany(ctx, cfg, dir, s)
		if err != nil {
			return values(rows), fmt.Errorf("start: %w", err)
		}
		start.add(fronts[1].name, m)
	}
	return values(rows), nil
}

// startGateway puts xb gateway before the stub.
func startGateway(ctx context.Context, cfg config, dir string, s *stub) (front, error) {
	return launchGateway(ctx, cfg, filepath.Join(dir, "xb"), s, 1, 1)
}

// launchGateway registers the stub under so many names, with so many groups
// each, and waits until discovery has all of them.
func launchGateway(ctx context.Context, cfg config, dir string, s *stub, servers, groups int) (front, error) {
	cert, key, err := writeCerts(dir)
	if err != nil {
		return front{}, err
	}
	var file strings.Builder
	for i := range servers {
		fmt.Fprintf(&file, "---\napiVersion: aggregation.xbernetes.io/v1alpha1\nkind: RemoteAPIServer\nmetadata: {name: stub-%d}\nspec:\n"+
			"  url: %s/%d/%d\n  groups: [\"*\"]\n  caBundle: %s\n  identity: {mode: FrontProxy, credentials: {clientCertificateFile: %s, clientKeyFile: %s}}\n",
			i, s.URL, i*groups, groups, s.ca(), cert, key)
	}
	list := filepath.Join(dir, "servers.yaml")
	if err := os.WriteFile(list, []byte(file.String()), 0o600); err != nil {
		return front{}, err
	}
	address := network.FreeAddr("127.0.0.1")
	p, err := launch(dir, "gateway", nil, cfg.xb, "gateway", "--servers", list, "--listen", address, "--data-dir", dir)
	if err != nil {
		return front{}, err
	}
	f := front{name: "xb gateway", base: "https://" + address, servers: []*process.Process{p}, close: func() { end(p) }}
	err = waitFor(ctx, "xb gateway", func(ctx context.Context) error {
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
		if err != nil {
			return err
		}
		if f.client == nil {
			if f.client, err = rest.HTTPClientFor(config); err != nil {
				return err
			}
		}
		return f.serves(ctx, servers*groups)
	})
	if err != nil {
		f.close()
	}
	return f, err
}

// serves is nil once discovery has all groups of the stub and the last of them
// answers.
func (f *front) serves(ctx context.Context, groups int) error {
	body, err := f.get(ctx, "/apis")
	if err != nil {
		return err
	}
	var list metav1.APIGroupList
	if err := json.Unmarshal(body, &list); err != nil {
		return err
	}
	n := 0
	for _, g := range list.Groups {
		if strings.HasSuffix(g.Name, ".example.com") {
			n++
		}
	}
	if n != groups {
		return fmt.Errorf("%d of %d groups", n, groups)
	}
	_, err = f.get(ctx, fmt.Sprintf("/apis/g%d.example.com/v1/namespaces/default/widgets/w", groups-1))
	return err
}

// startAggregator puts a kube-apiserver before the stub, by an APIService.
func startAggregator(ctx context.Context, cfg config, dir string, s *stub) (front, error) {
	dir = filepath.Join(dir, "aggregator")
	proxyCert, proxyKey, err := writeCerts(filepath.Join(dir, "proxy"))
	if err != nil {
		return front{}, err
	}
	c, err := startKubeWith(ctx, cfg, dir, "--proxy-client-cert-file", proxyCert, "--proxy-client-key-file", proxyKey, "--requestheader-client-ca-file", proxyCert)
	if err != nil {
		return front{}, err
	}
	f := front{name: "kube-aggregator", base: c.config.Host, servers: c.servers, close: c.stop}
	config := rest.CopyConfig(c.config)
	config.QPS = -1
	if f.client, err = rest.HTTPClientFor(config); err == nil {
		err = registerStub(ctx, config, s)
	}
	if err == nil {
		err = waitFor(ctx, "the aggregated API", func(ctx context.Context) error {
			_, err := f.get(ctx, widgetsPath+"default/widgets/w")
			return err
		})
	}
	if err != nil {
		f.close()
	}
	return f, err
}

func registerStub(ctx context.Context, config *rest.Config, s *stub) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	port, err := strconv.ParseInt(s.URL[strings.LastIndexByte(s.URL, ':')+1:], 10, 64)
	if err != nil {
		return err
	}
	service := map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "stub"},
		"spec": map[string]any{"type": "ExternalName", "externalName": "localhost", "ports": []any{map[string]any{"port": port}}},
	}
	api := map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1.g0.example.com"},
		"spec": map[string]any{
			"group": "g0.example.com", "version": "v1", "groupPriorityMinimum": int64(100), "versionPriority": int64(100), "insecureSkipTLSVerify": true,
			"service": map[string]any{"name": "stub", "namespace": "default", "port": port},
		},
	}
	if _, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "services"}).Namespace("default").
		Create(ctx, &unstructured.Unstructured{Object: service}, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err = client.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}).
		Create(ctx, &unstructured.Unstructured{Object: api}, metav1.CreateOptions{})
	return err
}

// startMany measures from launch until discovery has every group of many servers.
func startMany(ctx context.Context, cfg config, dir string, s *stub) (sample, error) {
	dir = filepath.Join(dir, "many")
	if err := os.RemoveAll(dir); err != nil {
		return sample{}, err
	}
	began := time.Now()
	f, err := launchGateway(ctx, cfg, dir, s, manyServers, groupsOfEach)
	if err != nil {
		return sample{}, err
	}
	defer f.close()
	took := time.Since(began)
	u, err := process.UsageOf(f.servers...)
	return sample{PerSecond: 1 / took.Seconds(), P50: took, P99: took, CPUPerOp: u.CPU, PeakMemory: u.Peak}, err
}

func (f *front) do(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.base+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := f.client.Do(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		resp.Body.Close()
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, body)
	}
	return resp, err
}

func (f *front) get(ctx context.Context, path string) ([]byte, error) {
	resp, err := f.do(ctx, path)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// gets sends total requests for a path at gatewayRate, each when it is due, however long
// others take, and measures each from when it was due.
func (f *front) gets(ctx context.Context, path string, total int) (sample, error) {
	for range 100 {
		if _, err := f.get(ctx, path); err != nil {
			return sample{}, err
		}
	}
	before, err := process.UsageOf(f.servers...)
	if err != nil {
		return sample{}, err
	}
	took := make([]time.Duration, total)
	failed := make(chan error, total)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range total {
		due := start.Add(time.Duration(i) * time.Second / gatewayRate)
		time.Sleep(time.Until(due))
		wg.Go(func() {
			if _, err := f.get(ctx, path); err != nil {
				failed <- err
			}
			took[i] = time.Since(due)
		})
	}
	wg.Wait()
	elapsed := time.Since(start)
	after, err := process.UsageOf(f.servers...)
	if err != nil {
		return sample{}, err
	}
	select {
	case err := <-failed:
		return sample{}, err
	default:
	}
	return sample{
		PerSecond: float64(total) / elapsed.Seconds(), P50: percentile(took, 50), P99: percentile(took, 99),
		CPUPerOp: (after.CPU - before.CPU) / time.Duration(total), PeakMemory: after.Peak,
	}, nil
}

// events opens the watches, and measures each event from when the stub sent it.
func (f *front) events(ctx context.Context, s *stub, length time.Duration) (sample, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for range idleWatches {
		resp, err := f.do(ctx, widgetsPath+"idle/widgets?watch=true")
		if err != nil {
			return sample{}, err
		}
		wg.Go(func() { io.Copy(io.Discard, resp.Body); resp.Body.Close() }) //nolint:errcheck // it ends when it is told to
	}
	var measuring atomic.Bool
	took := make([][]time.Duration, hotWatches)
	for i := range hotWatches {
		resp, err := f.do(ctx, widgetsPath+"hot/widgets?watch=true")
		if err != nil {
			return sample{}, err
		}
		wg.Go(func() {
			defer resp.Body.Close()
			for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
				if measuring.Load() {
					took[i] = append(took[i], sinceSent(lines.Bytes()))
				}
			}
		})
	}
	stop := s.emit(gatewayEvents / hotWatches)
	defer stop()
	time.Sleep(time.Second)
	before, err := process.UsageOf(f.servers...)
	if err != nil {
		return sample{}, err
	}
	start := time.Now()
	measuring.Store(true)
	time.Sleep(length)
	measuring.Store(false)
	elapsed := time.Since(start)
	after, err := process.UsageOf(f.servers...)
	if err != nil {
		return sample{}, err
	}
	cancel()
	wg.Wait()
	var all []time.Duration
	for _, t := range took {
		all = append(all, t...)
	}
	if len(all) == 0 {
		return sample{}, errors.New("no event came")
	}
	return sample{
		PerSecond: float64(len(all)) / elapsed.Seconds(), P50: percentile(all, 50), P99: percentile(all, 99),
		CPUPerOp: (after.CPU - before.CPU) / time.Duration(len(all)), PeakMemory: after.Peak,
	}, nil
}

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

func (s *stub) direct() front {
	return front{name: "direct", base: s.URL, client: s.Client(), close: func() {}}
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
