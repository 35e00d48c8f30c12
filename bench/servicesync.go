package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/xbernetes/xbernetes/test/lab/cluster"
	"github.com/xbernetes/xbernetes/test/lab/process"
	"github.com/xbernetes/xbernetes/test/lab/wait"
)

const (
	syncNamespace  = "bench"
	besideAnswers  = 50 // changes of endpoints a second, while answers are awaited
	syncServices   = 2000
	endpointsEach  = 10
	firstAnswers   = 40               // how often a first answered request is awaited
	changeTime     = 30 * time.Second // for which endpoints change at each rate
	directSync     = "direct"
	throughStore   = "through the store"
	lastEndpoint   = endpointsEach - 1
	perSliceWorker = 16
	settleTime     = 5 * time.Second
	proxyPeriod    = 100 * time.Millisecond // kube-proxy's own default is 1 s
)

// changesPerSec are the rates at which endpoints change, all over the Services.
var changesPerSec = []int{100, 200}

// propagation is what is measured of one transport beside the other.
type propagation struct {
	slices []*comparison // for each rate
	answer *comparison
}

func (p *propagation) rows() []comparison {
	var rows []comparison
	for _, c := range append(slices.Clone(p.slices), p.answer) {
		rows = append(rows, *c)
	}
	return rows
}

// serviceSync measures how long a change of an endpoint in one cluster takes to
// be in the EndpointSlice of another, and to be behind the first request that
// is answered.
func serviceSync(ctx context.Context, cfg config) ([]comparison, error) {
	p := &propagation{answer: newComparison("an endpoint appears, until a request elsewhere is answered", directSync, throughStore)}
	for _, rate := range changesPerSec {
		p.slices = append(p.slices, newComparison(fmt.Sprintf("an endpoint changes, until the slice elsewhere has it, %d a second", rate), directSync, throughStore))
	}
	for round := range cfg.rounds {
		for _, transport := range []string{directSync, throughStore} {
			fmt.Fprintf(os.Stderr, "servicesync: round %d, %s\n", round+1, transport)
			if err := p.round(ctx, cfg, transport); err != nil {
				return p.rows(), fmt.Errorf("%s: %w", transport, err)
			}
		}
	}
	return p.rows(), nil
}

// syncBed is two clusters with a controller each, and a third for the store.
type syncBed struct {
	lab         *cluster.Lab
	clusters    []*cluster.Cluster
	a, b        *cluster.Cluster // the first two
	controllers []*process.Process
	// How the bench changes a's slices and watches b's: as Kubernetes' own
	// controllers do, in protobuf.
	changer, watcher kubernetes.Interface
	// changeOne makes change number n, which is of Service i.
	changeOne func(ctx context.Context, i, n int) error
}

// inProtobuf is a client that speaks as Kubernetes' own controllers do, does not
// pace itself, and costs the API server as little as it can.
func inProtobuf(c *cluster.Cluster) (kubernetes.Interface, error) {
	config := rest.CopyConfig(c.Config)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	config.QPS, config.DisableCompression, config.WarningHandler = -1, true, rest.NoWarnings{}
	return kubernetes.NewForConfig(config)
}

func (s *syncBed) close() {
	end(s.controllers...)
	closeLab(s.lab)
}

// newLab starts a lab in a folder that no other has had: clients of Kubernetes
// take a certificate in a file of the same name for the same.
func newLab(ctx context.Context, cfg config, name string) (*cluster.Lab, error) {
	if err := os.MkdirAll(cfg.dir, 0o755); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(cfg.dir, name+"-")
	if err != nil {
		return nil, err
	}
	l, err := cluster.New(ctx, dir)
	if l != nil {
		// A collection in one API server takes half a core for a second, which on two
		// cores that are full everybody waits for. Where they have cores of their own
		// nobody would notice; here they do not collect while there is room.
		l.APIServerEnv = []string{"GOGC=off", "GOMEMLIMIT=6GiB"}
		l.NoControllers = true // they have no hand in Services without selectors; see answerWhileChanging
	}
	return l, err
}

// closeLab ends a lab and removes its data, which are gigabytes.
func closeLab(l *cluster.Lab) {
	l.Close()
	if err := os.RemoveAll(l.Dir); err != nil {
		fmt.Fprintln(os.Stderr, "servicesync:", err)
	}
}

// newBed starts clusters of these names in a lab. The first two are a and b, and
// have the namespace.
func newBed(ctx context.Context, l *cluster.Lab, onNetwork bool, names ...string) (*syncBed, error) {
	s := &syncBed{lab: l}
	for i, name := range names {
		c, err := l.StartCluster(ctx, i+1, name, onNetwork)
		if err == nil {
			err = c.InstallCRDs(ctx)
		}
		if err != nil {
			return s, err
		}
		s.clusters = append(s.clusters, c)
	}
	s.a, s.b = s.clusters[0], s.clusters[1]
	for _, c := range s.clusters[:2] {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: syncNamespace}}
		if _, err := c.Client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return s, err
		}
	}
	var err error
	if s.changer, err = inProtobuf(s.a); err == nil {
		s.watcher, err = inProtobuf(s.b)
	}
	return s, err
}

// startSync starts the clusters and, once a has its Services, the controllers.
func startSync(ctx context.Context, cfg config, transport string, services int) (*syncBed, error) {
	l, err := newLab(ctx, cfg, "servicesync")
	if err != nil {
		return nil, err
	}
	names := []string{"alpha", "beta"}
	if transport == throughStore {
		names = append(names, "store")
	}
	s, err := newBed(ctx, l, cluster.CanHaveNodes() == nil, names...)
	if err == nil {
		err = s.prepare(ctx, services)
	}
	if err == nil {
		err = s.startXB(cfg)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// startXB starts an xb servicesync in a and in b. They meet in the third cluster,
// if there is one.
func (s *syncBed) startXB(cfg config) error {
	for i, own := range s.clusters[:2] {
		dir, err := s.peersOf(own, s.clusters[1-i])
		if err != nil {
			return err
		}
		where := []string{"--peers", dir}
		if len(s.clusters) > 2 {
			where = []string{"--store", s.clusters[2].Kubeconfig()}
		}
		args := append(syncArgs(own), where...)
		c, err := launch(s.lab.Dir, "servicesync-"+own.Name, []string{"NSTOWATCH=" + syncNamespace}, append([]string{cfg.xb}, args...)...)
		if err != nil {
			return err
		}
		s.controllers = append(s.controllers, c)
	}
	return nil
}

// peersOf is a folder with the kubeconfig of a cluster's one peer.
func (s *syncBed) peersOf(own, peer *cluster.Cluster) (dir string, err error) {
	dir = filepath.Join(s.lab.Dir, "peers-of-"+own.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return dir, peer.WriteKubeconfig(filepath.Join(dir, peer.Name), peer.Config.Host, peer.Config.BearerToken)
}

func syncArgs(own *cluster.Cluster) []string {
	return []string{"servicesync", "--kubeconfig", own.Kubeconfig(), "--cluster", own.Name, "--allow", "*=claim,selector"}
}

// prepare makes the Services with their slices in a: no controller of Kubernetes
// has a hand in those.
func (s *syncBed) prepare(ctx context.Context, services int) error {
	// Slices as they were last seen: who changes slices has a cache of them.
	cached := make([]*discoveryv1.EndpointSlice, services)
	s.changeOne = func(ctx context.Context, i, n int) error {
		// Nearly all that happens to an endpoint changes how many are ready, too.
		e := &cached[i].Endpoints[lastEndpoint]
		ready := !*e.Conditions.Ready
		e.Addresses[0], e.Conditions.Ready, e.Conditions.Serving = changed(n), &ready, &ready
		written, err := s.changer.DiscoveryV1().EndpointSlices(syncNamespace).Update(ctx, cached[i], metav1.UpdateOptions{})
		if err != nil {
			return err
		}
		cached[i] = written
		return nil
	}
	return inParallel(ctx, perSliceWorker, services, func(ctx context.Context, i int) (err error) {
		cached[i], err = createSliced(ctx, s.changer, fmt.Sprintf("s-%d", i), endpointsEach, func(e int) string { return address(i, e) })
		return err
	})
}

// createSliced makes a Service without a selector, and a slice of it.
func createSliced(ctx context.Context, c kubernetes.Interface, name string, endpoints int, address func(int) string) (*discoveryv1.EndpointSlice, error) {
	if _, err := c.CoreV1().Services(syncNamespace).Create(ctx, benchService(name), metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	return c.DiscoveryV1().EndpointSlices(syncNamespace).Create(ctx, benchSlice(name, endpoints, address), metav1.CreateOptions{})
}

// benchService is a Service without a selector.
func benchService(name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}}
}

func benchSlice(name string, endpoints int, address func(int) string) *discoveryv1.EndpointSlice {
	port, portName, protocol, ready := int32(cluster.Port), "http", corev1.ProtocolTCP, true
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: "bench"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &portName, Port: &port, Protocol: &protocol}},
	}
	for e := range endpoints {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{address(e)}, Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready},
		})
	}
	return s
}

// address is that of endpoint e of Service i, which no other has.
func address(i, e int) string {
	n := i*32 + e
	return fmt.Sprintf("10.%d.%d.%d", 128+n>>16&0x3f, n>>8&0xff, n&0xff)
}

// changed is the address that change number n puts in.
func changed(n int) string { return fmt.Sprintf("11.%d.%d.%d", n>>16&0xff, n>>8&0xff, n&0xff) }

// round measures one transport once.
func (p *propagation) round(ctx context.Context, cfg config, transport string) error {
	services := max(50, int(syncServices*cfg.scale))
	s, err := startSync(ctx, cfg, transport, services)
	if err != nil {
		return err
	}
	defer s.close()
	seen := newArrivals()
	stop, err := seen.follow(ctx, s.watcher)
	if err != nil {
		return err
	}
	defer stop()
	if err := waitLong(ctx, "the Services are imported", func() error { return seen.atLeast(services) }); err != nil {
		return err
	}
	from := 0
	for i, rate := range changesPerSec {
		// What the import, or the rate before, leaves to do is not measured.
		if err := wait.For(ctx, settleTime); err != nil {
			return err
		}
		to := from + max(rate, int(changeTime.Seconds()*float64(rate)*cfg.scale))
		measured, err := s.measure(ctx, seen, services, from, to, rate)
		if err != nil {
			return err
		}
		p.slices[i].add(transport, measured)
		from = to
	}
	return p.answerWhileChanging(ctx, s, seen, services, from, transport)
}

// measure makes changes number from to to-1 and waits until they have arrived.
func (s *syncBed) measure(ctx context.Context, seen *arrivals, services, from, to, perSecond int) (sample, error) {
	before, err := process.UsageOf(s.controllers...)
	if err != nil {
		return sample{}, err
	}
	seen.forget()
	if err := s.change(ctx, seen, services, from, to, perSecond); err != nil {
		return sample{}, err
	}
	if err := waitLong(ctx, "all changes have arrived", seen.none); err != nil {
		return sample{}, err
	}
	after, err := process.UsageOf(s.controllers...)
	took := seen.durations()
	return sample{
		PerSecond: float64(perSecond), P50: percentile(took, 50), P99: percentile(took, 99),
		CPUPerOp: (after.CPU - before.CPU) / time.Duration(to-from), PeakMemory: after.Peak,
	}, err
}

// answerWhileChanging measures first answers while changes go on. The node comes
// only now: its kube-proxy, which writes rules several times a second, would be
// measured with the slices, and is on other machines elsewhere. Beside it and the
// callers, two cores carry fewer changes.
func (p *propagation) answerWhileChanging(ctx context.Context, s *syncBed, seen *arrivals, services, from int, transport string) error {
	if err := cluster.CanHaveNodes(); err != nil {
		fmt.Fprintln(os.Stderr, "servicesync: no first answers:", err)
		return nil
	}
	// The slices of the cluster's DNS are theirs.
	if err := s.b.StartControllers(ctx); err != nil {
		return err
	}
	s.b.ProxyPeriod = proxyPeriod
	if err := s.b.AddNode(ctx); err != nil {
		return err
	}
	changing, end := context.WithCancel(ctx)
	defer end()
	background := make(chan error, 1)
	go func() { background <- s.change(changing, seen, services, from, math.MaxInt, besideAnswers) }()
	answered, err := s.firstAnswers(ctx)
	end()
	if ended := <-background; !errors.Is(ended, context.Canceled) {
		err = errors.Join(err, ended)
	}
	p.answer.add(transport, sample{P50: percentile(answered, 50), P99: percentile(answered, 99)})
	return err
}

// change replaces the last endpoint of one Service after the other, as change
// number from to to-1, perSecond of them, without waiting for any answer but that
// to the last change of the same Service: another order would leave an older one
// there for good.
func (s *syncBed) change(ctx context.Context, seen *arrivals, services, from, to, perSecond int) error {
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	var changes errgroup.Group
	last := make([]chan struct{}, services)
	for n := from; n < to; n++ {
		select {
		case <-ctx.Done():
			_ = changes.Wait()
			return ctx.Err()
		case <-tick.C:
		}
		i, done := n%services, make(chan struct{})
		before := last[i]
		last[i] = done
		changes.Go(func() error {
			defer close(done)
			if before != nil {
				<-before
			}
			seen.sent(fmt.Sprintf("s-%d", i), n)
			if err := s.changeOne(context.WithoutCancel(ctx), i, n); err != nil {
				return fmt.Errorf("change %d: %w", n, err)
			}
			return nil
		})
	}
	return changes.Wait()
}

// arrivals notes when changes were sent, and when the slice elsewhere had them.
type arrivals struct {
	mu       sync.Mutex
	begun    map[string][]sentChange // by what they change, in their order
	changes  map[string]string       // by address: what it changes
	took     []time.Duration
	services map[string]bool // that have a slice
	slices   map[string]*discoveryv1.EndpointSlice
	held     map[string]int // in how many of those each address is
}

// sentChange is a change that has not arrived yet.
type sentChange struct {
	address string
	at      time.Time
}

func newArrivals() *arrivals {
	return &arrivals{begun: map[string][]sentChange{}, changes: map[string]string{}, services: map[string]bool{}, slices: map[string]*discoveryv1.EndpointSlice{}, held: map[string]int{}}
}

func (a *arrivals) sent(what string, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changes[changed(n)] = what
	a.begun[what] = append(a.begun[what], sentChange{changed(n), time.Now()})
}

// follow watches the slices of a cluster until the returned function is called.
// An API server ends the watch of who falls behind; it goes on where it was.
func (a *arrivals) follow(ctx context.Context, c kubernetes.Interface) (func(), error) {
	client := c.DiscoveryV1().EndpointSlices(syncNamespace)
	now, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range now.Items {
		a.note(&now.Items[i], time.Now())
	}
	w, err := watchtools.NewRetryWatcherWithContext(ctx, now.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: client.Watch,
	})
	if err != nil {
		return nil, err
	}
	go func() {
		for event := range w.ResultChan() {
			s, ok := event.Object.(*discoveryv1.EndpointSlice)
			switch {
			case !ok:
				fmt.Fprintln(os.Stderr, "servicesync: slices are watched no more:", event.Object)
			case event.Type == watch.Deleted:
				a.mu.Lock()
				a.hold(s.Name, nil)
				a.mu.Unlock()
			default:
				a.note(s, time.Now())
			}
		}
	}()
	return w.Stop, nil
}

func (a *arrivals) note(s *discoveryv1.EndpointSlice, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.services[s.Labels[discoveryv1.LabelServiceName]] = true
	a.hold(s.Name, s)
	for _, e := range s.Endpoints {
		what, ok := a.changes[e.Addresses[0]]
		if !ok {
			continue
		}
		begun := a.begun[what]
		i := slices.IndexFunc(begun, func(c sentChange) bool { return c.address == e.Addresses[0] })
		for _, c := range begun[:i+1] { // those before it arrive with it: it has taken their place
			a.took = append(a.took, now.Sub(c.at))
			delete(a.changes, c.address)
		}
		a.begun[what] = begun[i+1:]
	}
}

func (a *arrivals) atLeast(services int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.services) < services {
		return fmt.Errorf("%d of %d", len(a.services), services)
	}
	return nil
}

// hold takes a slice as it is now for what it was; nil: it is gone. a.mu is held.
func (a *arrivals) hold(name string, s *discoveryv1.EndpointSlice) {
	if s != nil {
		for _, e := range s.Endpoints {
			a.held[e.Addresses[0]]++
		}
	}
	if old := a.slices[name]; old != nil {
		for _, e := range old.Endpoints {
			if a.held[e.Addresses[0]]--; a.held[e.Addresses[0]] == 0 {
				delete(a.held, e.Addresses[0])
			}
		}
	}
	if a.slices[name] = s; s == nil {
		delete(a.slices, name)
	}
}

// endpoints is nil if so many are in slices.
func (a *arrivals) endpoints(want int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.held) < want {
		return fmt.Errorf("%d of %d", len(a.held), want)
	}
	return nil
}

// forget drops what was measured so far.
func (a *arrivals) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.took = nil
}

// none is nil if nothing that was sent is under way.
func (a *arrivals) none() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.changes) > 0 {
		return fmt.Errorf("%d are under way", len(a.changes))
	}
	return nil
}

func (a *arrivals) durations() []time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]time.Duration(nil), a.took...)
}

// firstAnswers has a pod of the first cluster come and go, and measures each
// time how long until a caller in the other is answered.
func (s *syncBed) firstAnswers(ctx context.Context) ([]time.Duration, error) {
	pod, err := s.b.AddPod(ctx, syncNamespace, "answers", nil) // where it runs is nothing to the path
	if err != nil {
		return nil, err
	}
	if _, err := createSliced(ctx, s.a.Client, "probe", 0, nil); err != nil {
		return nil, err
	}
	caller, err := s.b.NewCaller("probe."+syncNamespace+".svc.cluster.local", 80)
	if err != nil {
		return nil, err
	}
	// Until kube-proxy knows of a Service, calls of it get no answer at all, and are
	// tried again after a second: it is a change of endpoints that is measured.
	if err := waitLong(ctx, "requests are refused", func() error {
		if _, err := caller.Get(ctx); !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("they are not: %w", err)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	var took []time.Duration
	for range firstAnswers {
		begun := time.Now()
		if err := s.setProbe(ctx, benchSlice("probe", 1, func(int) string { return pod.IP })); err != nil {
			return took, err
		}
		if err := waitLong(ctx, "a request is answered", func() error { _, err := caller.Get(ctx); return err }); err != nil {
			return took, err
		}
		took = append(took, time.Since(begun))
		if err := s.setProbe(ctx, benchSlice("probe", 0, nil)); err != nil {
			return took, err
		}
		if err := waitLong(ctx, "requests fail again", func() error {
			if _, err := caller.Get(ctx); err == nil {
				return fmt.Errorf("they are answered")
			}
			return nil
		}); err != nil {
			return took, err
		}
	}
	return took, nil
}

func (s *syncBed) setProbe(ctx context.Context, want *discoveryv1.EndpointSlice) error {
	endpoints, err := json.Marshal(want.Endpoints)
	if err != nil {
		return err
	}
	if want.Endpoints == nil {
		endpoints = []byte("[]")
	}
	patch := fmt.Appendf(nil, `{"endpoints":%s}`, endpoints)
	_, err = s.a.Client.DiscoveryV1().EndpointSlices(syncNamespace).Patch(ctx, want.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// inParallel calls f for 0 to n-1 on so many workers, and stops at an error.
func inParallel(ctx context.Context, workers, n int, f func(ctx context.Context, i int) error) error {
	_, err := drive(ctx, nil, workers, n, func(ctx context.Context, _, i int) error { return f(ctx, i) })
	return err
}
