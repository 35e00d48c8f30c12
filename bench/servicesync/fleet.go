package servicesync

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/xbernetes/xbernetes/bench/measure"
	"github.com/xbernetes/xbernetes/test/lab/cluster"
	"github.com/xbernetes/xbernetes/test/lab/process"
	"github.com/xbernetes/xbernetes/test/lab/wait"
)

// A fleet is many clusters that share the same Services, of which one is there
// and the others are what they would publish, in one API server.
const (
	fleetPeers     = 9
	fleetServices  = 5000
	fleetEndpoints = 20
	fleetNamespace = "xb-servicesync" // of publications
	bareClient     = "16 workers, nothing else"
	bareEndpoints  = 90 // half of what others have of a Service: Kubernetes has at most 100 in a slice
	syncGroup      = "servicesync.xbernetes.io"
	fleetFormat    = int64(3) // of publications
)

var (
	publishedServices = schema.GroupVersionResource{Group: syncGroup, Version: "v1alpha1", Resource: "publishedservices"}
	clusterLeases     = schema.GroupVersionResource{Group: syncGroup, Version: "v1alpha1", Resource: "clusterleases"}
)

type fleet struct {
	lab       *cluster.Lab
	own, far  *cluster.Cluster
	client    kubernetes.Interface // of own
	published dynamic.Interface
	services  int
}

// Fleet measures how a large fleet is imported, and a restart after that;
// once, for it takes minutes to lay out.
func Fleet(ctx context.Context, cfg measure.Config) ([]measure.Comparison, error) {
	f, err := startFleet(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer closeLab(f.lab)
	renewing, stop := context.WithCancel(ctx)
	defer stop()
	go f.renew(renewing)
	total := f.services * fleetPeers * fleetEndpoints
	bare := measure.NewComparison(fmt.Sprintf("%d endpoints written by a client that does nothing else, %d to a slice", total, bareEndpoints), bareClient)
	system := fmt.Sprintf("%d clusters, %d Services, %d endpoints each", fleetPeers+1, f.services, fleetEndpoints)
	cold := measure.NewComparison(fmt.Sprintf("a cold import of %d endpoints; latency: of live changes meanwhile", total), system)
	warm := measure.NewComparison("a restart without changes", system)
	sync, err := f.startSync(cfg)
	if err != nil {
		return nil, err
	}
	imported, err := f.importAll(ctx, sync, total)
	if err != nil {
		measure.End(sync)
		return nil, err
	}
	cold.Add(system, imported)
	measure.End(sync)
	restarted, err := f.restart(ctx, cfg)
	warm.Add(system, restarted)
	if err != nil {
		return []measure.Comparison{*cold, *warm}, err
	}
	created, err := f.createBare(ctx, total)
	bare.Add(bareClient, created)
	return []measure.Comparison{*cold, *warm, *bare}, err
}

// createBare writes as many endpoints as were imported, in the same API server
// and as fast as it takes them: the least that any controller could need here.
func (f *fleet) createBare(ctx context.Context, total int) (measure.Sample, error) {
	created, err := measure.Drive(ctx, nil, perSliceWorker, total/bareEndpoints, func(ctx context.Context, _, i int) error {
		s := benchSlice(fmt.Sprintf("bare-%d", i), bareEndpoints, func(e int) string { return bareAddress(i*bareEndpoints + e) })
		_, err := f.client.DiscoveryV1().EndpointSlices(namespace).Create(ctx, s, metav1.CreateOptions{})
		return err
	})
	created.PerSecond *= bareEndpoints
	return created, err
}

func startFleet(ctx context.Context, cfg measure.Config) (*fleet, error) {
	l, err := newLab(ctx, cfg, "servicesync-fleet")
	if err != nil {
		return nil, err
	}
	f := &fleet{lab: l, services: max(20, int(fleetServices*cfg.Scale))}
	err = f.lay(ctx)
	if err != nil {
		closeLab(l)
		return nil, err
	}
	return f, nil
}

// lay makes the own cluster's Services and what the others publish.
func (f *fleet) lay(ctx context.Context) (err error) {
	for i, c := range []**cluster.Cluster{&f.own, &f.far} {
		if *c, err = f.lab.StartCluster(ctx, i+1, []string{"own", "far"}[i], false); err != nil {
			return err
		}
		if err := (*c).InstallCRDs(ctx); err != nil {
			return err
		}
		for _, name := range []string{namespace, fleetNamespace} {
			_, err := (*c).Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
		}
	}
	if f.client, err = inProtobuf(f.own); err != nil {
		return err
	}
	if f.published, err = dynamic.NewForConfig(f.far.Config); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "servicesync: laying out %d Services of %d clusters\n", f.services, fleetPeers+1)
	if err := inParallel(ctx, perSliceWorker, f.services, f.createOwn); err != nil {
		return err
	}
	if err := inParallel(ctx, perSliceWorker, f.services*fleetPeers, f.publish); err != nil {
		return err
	}
	for peer := range fleetPeers {
		if err := f.create(ctx, clusterLeases, f.lease(peer)); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) createOwn(ctx context.Context, i int) error {
	name := fmt.Sprintf("s-%d", i)
	service := benchService(name)
	service.Annotations = map[string]string{syncGroup + "/mode": "union"}
	if _, err := f.client.CoreV1().Services(namespace).Create(ctx, service, metav1.CreateOptions{}); err != nil {
		return err
	}
	own := func(e int) string { return fleetAddress(fleetPeers, i, e) }
	_, err := f.client.DiscoveryV1().EndpointSlices(namespace).Create(ctx, benchSlice(name, fleetEndpoints, own), metav1.CreateOptions{})
	return err
}

func fleetAddress(peer, i, e int) string {
	n := i*32 + e
	return fmt.Sprintf("%d.%d.%d.%d", 20+peer, n>>16&0xff, n>>8&0xff, n&0xff)
}

// bareAddress is one that no cluster of the fleet has.
func bareAddress(n int) string { return fmt.Sprintf("60.%d.%d.%d", n>>16&0xff, n>>8&0xff, n&0xff) }

func peerName(peer int) string { return fmt.Sprintf("peer-%d", peer) }

func (f *fleet) create(ctx context.Context, r schema.GroupVersionResource, obj map[string]any) error {
	_, err := f.published.Resource(r).Namespace(fleetNamespace).Create(ctx, &unstructured.Unstructured{Object: obj}, metav1.CreateOptions{})
	return err
}

// publication is what a peer says of Service i.
func publication(peer, i int, spec map[string]any) map[string]any {
	name := fmt.Sprintf("s-%d", i)
	spec["cluster"] = peerName(peer)
	spec["service"] = map[string]any{"namespace": namespace, "name": name}
	return map[string]any{
		"apiVersion": syncGroup + "/v1alpha1", "kind": "PublishedService",
		"metadata": map[string]any{
			"name": publicationName(peer, i),
			"labels": map[string]any{
				syncGroup + "/cluster": peerName(peer), syncGroup + "/service": name, syncGroup + "/namespace": namespace,
			},
		},
		"spec": spec,
	}
}

func publicationName(peer, i int) string { return fmt.Sprintf("s-%d-%s", i, peerName(peer)) }

// publish publishes Service n/peers of peer n%peers.
func (f *fleet) publish(ctx context.Context, n int) error {
	peer, i := n%fleetPeers, n/fleetPeers
	var addresses []any
	for e := range fleetEndpoints {
		addresses = append(addresses, fleetAddress(peer, i, e))
	}
	return f.create(ctx, publishedServices, publication(peer, i, map[string]any{
		"formatVersion": fleetFormat, "role": "union", "mode": "union", "ready": int64(fleetEndpoints), "total": int64(fleetEndpoints),
		"template": map[string]any{
			"created": "2026-01-01T00:00:00Z", "type": "ClusterIP", "sessionAffinity": "None", "ipFamilies": []any{"IPv4"},
			"ports": []any{map[string]any{"name": "http", "port": int64(80), "protocol": "TCP", "targetPort": int64(80)}},
		},
		"slices": []any{map[string]any{
			"name": fmt.Sprintf("s-%d-0", i), "addressType": "IPv4",
			"ports":     []any{map[string]any{"name": "http", "port": int64(cluster.Port), "protocol": "TCP"}},
			"endpoints": []any{map[string]any{"addresses": addresses, "ready": true, "serving": true}},
		}},
	}))
}

func (f *fleet) lease(peer int) map[string]any {
	return map[string]any{
		"apiVersion": syncGroup + "/v1alpha1", "kind": "ClusterLease",
		"metadata": map[string]any{"name": peerName(peer), "labels": map[string]any{syncGroup + "/cluster": peerName(peer)}},
		"spec": map[string]any{
			"formatVersion": fleetFormat, "cluster": peerName(peer), "renewTime": time.Now().UTC().Format(metav1.RFC3339Micro),
			"durationSeconds": int64(40), "complete": true, "services": int64(f.services), "peers": []any{"own"},
		},
	}
}

// renew keeps the others alive.
func (f *fleet) renew(ctx context.Context) {
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for peer := range fleetPeers {
			patch := fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
			if _, err := f.published.Resource(clusterLeases).Namespace(fleetNamespace).Patch(ctx, peerName(peer), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "servicesync: renew lease:", err)
			}
		}
	}
}

func (f *fleet) startSync(cfg measure.Config) (*process.Process, error) {
	dir := filepath.Join(f.lab.Dir, "peers")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for peer := range fleetPeers {
		if err := f.far.WriteKubeconfig(filepath.Join(dir, peerName(peer)), f.far.Config.Host, f.far.Config.BearerToken); err != nil {
			return nil, err
		}
	}
	return measure.Launch(f.lab.Dir, "servicesync", []string{"NSTOWATCH=" + namespace}, append([]string{cfg.XB}, append(syncArgs(f.own), "--peers", dir)...)...)
}

// importAll waits for all endpoints, and changes some meanwhile, from the first one
// on: what changes before the others are read is not told from the rest.
func (f *fleet) importAll(ctx context.Context, sync *process.Process, total int) (measure.Sample, error) {
	seen := newArrivals()
	stop, err := seen.follow(ctx, f.client)
	if err != nil {
		return measure.Sample{}, err
	}
	defer stop()
	before, err := f.writes(ctx)
	if err != nil {
		return measure.Sample{}, err
	}
	own, begun := f.services*fleetEndpoints, time.Now()
	if err := measure.WaitLong(ctx, "an endpoint is imported", func() error { return seen.endpoints(own + 1) }); err != nil {
		return measure.Sample{}, err
	}
	changing, enough := context.WithCancel(ctx)
	changes := make(chan error, 1)
	go func() { changes <- f.change(changing, seen) }()
	err = measure.WaitLong(ctx, "all endpoints are imported", func() error { return seen.endpoints(own + total) })
	took := time.Since(begun)
	enough()
	if err := errors.Join(err, <-changes); err != nil {
		return measure.Sample{}, err
	}
	// A restarted controller would write what this one leaves behind.
	if err := measure.WaitLong(ctx, "all changes have arrived", seen.none); err != nil {
		return measure.Sample{}, err
	}
	after, err := f.writes(ctx)
	if err != nil {
		return measure.Sample{}, err
	}
	fmt.Fprintf(os.Stderr, "servicesync: %d endpoints were imported in %.1f s, with %d writes\n", total, took.Seconds(), after-before)
	u, err := process.UsageOf(sync)
	live := seen.durations()
	return measure.Sample{
		PerSecond: float64(total) / took.Seconds(), P50: measure.Percentile(live, 50), P99: measure.Percentile(live, 99),
		CPUPerOp: u.CPU / time.Duration(total), PeakMemory: u.Peak,
	}, err
}

// change changes ten endpoints a second of those that others publish.
func (f *fleet) change(ctx context.Context, seen *arrivals) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		patch := fmt.Appendf(nil, `[{"op":"replace","path":"/spec/slices/0/endpoints/0/addresses/0","value":%q}]`, changed(n))
		service := n * 37 % f.services
		name := publicationName(n%fleetPeers, service)
		seen.sent(name, n)
		_, err := f.published.Resource(publishedServices).Namespace(fleetNamespace).
			Patch(context.WithoutCancel(ctx), name, types.JSONPatchType, patch, metav1.PatchOptions{})
		if err != nil {
			return err
		}
	}
}

// restart starts the controller again, and counts what it writes until a
// change that is made after a while has arrived.
func (f *fleet) restart(ctx context.Context, cfg measure.Config) (measure.Sample, error) {
	before, err := f.writes(ctx)
	if err != nil {
		return measure.Sample{}, err
	}
	begun := time.Now()
	sync, err := f.startSync(cfg)
	if err != nil {
		return measure.Sample{}, err
	}
	defer measure.End(sync)
	seen := newArrivals()
	stop, err := seen.follow(ctx, f.client)
	if err != nil {
		return measure.Sample{}, err
	}
	defer stop()
	const fence = 1 << 20
	patch := fmt.Appendf(nil, `[{"op":"replace","path":"/spec/slices/0/endpoints/0/addresses/1","value":%q}]`, changed(fence))
	seen.sent("fence", fence)
	if _, err := f.published.Resource(publishedServices).Namespace(fleetNamespace).Patch(ctx, publicationName(0, 0), types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
		return measure.Sample{}, err
	}
	if err := measure.WaitLong(ctx, "the restarted controller works", seen.none); err != nil {
		return measure.Sample{}, err
	}
	ready := time.Since(begun)
	if err := wait.For(ctx, 30*time.Second); err != nil { // what else it would write, it writes now
		return measure.Sample{}, err
	}
	after, err := f.writes(ctx)
	if err != nil {
		return measure.Sample{}, err
	}
	u, err := process.UsageOf(sync)
	fmt.Fprintf(os.Stderr, "servicesync: restarted, it wrote %d objects, one of which was asked for; the first change arrived after %.1f s\n", after-before, ready.Seconds())
	return measure.Sample{P50: ready, PeakMemory: u.Peak}, err
}

var (
	requestTotal  = regexp.MustCompile(`^apiserver_request_total\{(.*)\} ([0-9.e+]+)$`)
	writeVerb     = regexp.MustCompile(`verb="(POST|PUT|PATCH|APPLY|DELETE)"`)
	countedObject = regexp.MustCompile(`resource="(services|endpoints|endpointslices|publishedservices|publishedslices|serviceimports|serviceexports|namespaces)"`)
)

// writes counts what the own API server has been asked to write of objects
// that matter: no leases, no events.
func (f *fleet) writes(ctx context.Context) (int, error) {
	text, err := f.own.Client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for line := range strings.Lines(string(text)) {
		m := requestTotal.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil || !strings.Contains(m[1], `code="20`) {
			continue
		}
		if !writeVerb.MatchString(m[1]) || !countedObject.MatchString(m[1]) {
			continue
		}
		n, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return int(sum), nil
}
