// Package gateway measures what xb gateway and the aggregator of a kube-apiserver add to a
// server that answers at once. It never measures a server that stores anything.
package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/xbernetes/xbernetes/bench/front"
	"github.com/xbernetes/xbernetes/bench/kubeserver"
	"github.com/xbernetes/xbernetes/bench/measure"
	"github.com/xbernetes/xbernetes/test/lab/network"
	"github.com/xbernetes/xbernetes/test/lab/process"
)

const (
	idleWatches   = 1_000 // that get nothing
	hotWatches    = 10    // that share gatewayEvents
	gatewayEvents = 5_000 // events a second
	manyServers   = 100
	groupsOfEach  = 5
	widgetsPath   = "/apis/g0.example.com/v1/namespaces/"
)

// Overhead measures what a gateway adds to a server that answers at once: the
// stub, in this process, asked directly, through xb gateway, and through the
// aggregator of a kube-apiserver on etcd. Both know callers by certificates and
// the stub by front-proxy headers over mTLS.
func Overhead(ctx context.Context, cfg measure.Config) ([]measure.Comparison, error) {
	dir := filepath.Join(cfg.Dir, "gateway")
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	s := startStub()
	defer s.close()
	fronts := []front.Front{s.direct()}
	defer func() {
		for _, f := range fronts {
			f.Close()
		}
	}()
	for _, start := range []func(context.Context, measure.Config, string, *stub) (front.Front, error){startGateway, startAggregator} {
		f, err := start(ctx, cfg, dir, s)
		if err != nil {
			return nil, err
		}
		fronts = append(fronts, f)
	}
	names := []string{fronts[0].Name, fronts[1].Name, fronts[2].Name}
	gets := measure.NewComparison(fmt.Sprintf("get, 1 KiB, %d a second", front.Rate), names...)
	seen := measure.NewComparison(fmt.Sprintf("%d events a second to %d watches, beside %d idle", gatewayEvents, hotWatches, idleWatches), names...)
	start := measure.NewComparison(fmt.Sprintf("launch to discovery of %d servers with %d groups", manyServers, manyServers*groupsOfEach), fronts[1].Name)
	rows := []*measure.Comparison{gets, seen, start}
	for round := range cfg.Rounds {
		for _, f := range fronts {
			fmt.Fprintf(os.Stderr, "gateway: round %d, %s\n", round+1, f.Name)
			m, err := f.Gets(ctx, widgetsPath+"default/widgets/w", max(1, int(10*front.Rate*cfg.Scale)))
			if err != nil {
				return measure.Values(rows), fmt.Errorf("get, %s: %w", f.Name, err)
			}
			gets.Add(f.Name, m)
			if m, err = events(ctx, &f, s, time.Duration(10*cfg.Scale*float64(time.Second))); err != nil {
				return measure.Values(rows), fmt.Errorf("watch, %s: %w", f.Name, err)
			}
			seen.Add(f.Name, m)
		}
		m, err := startMany(ctx, cfg, dir, s)
		if err != nil {
			return measure.Values(rows), fmt.Errorf("start: %w", err)
		}
		start.Add(fronts[1].Name, m)
	}
	return measure.Values(rows), nil
}

// startGateway puts xb gateway before the stub.
func startGateway(ctx context.Context, cfg measure.Config, dir string, s *stub) (front.Front, error) {
	return launchGateway(ctx, cfg, filepath.Join(dir, "xb"), s, 1, 1)
}

// launchGateway registers the stub under so many names, with so many groups
// each, and waits until discovery has all of them.
func launchGateway(ctx context.Context, cfg measure.Config, dir string, s *stub, servers, groups int) (front.Front, error) {
	cert, key, err := kubeserver.WriteCerts(dir)
	if err != nil {
		return front.Front{}, err
	}
	var file strings.Builder
	for i := range servers {
		fmt.Fprintf(&file, "---\napiVersion: aggregation.xbernetes.io/v1alpha1\nkind: RemoteAPIServer\nmetadata: {name: stub-%d}\nspec:\n"+
			"  url: %s/%d/%d\n  groups: [\"*\"]\n  caBundle: %s\n  identity: {mode: FrontProxy, credentials: {clientCertificateFile: %s, clientKeyFile: %s}}\n",
			i, s.URL, i*groups, groups, s.ca(), cert, key)
	}
	list := filepath.Join(dir, "servers.yaml")
	if err := os.WriteFile(list, []byte(file.String()), 0o600); err != nil {
		return front.Front{}, err
	}
	address := network.FreeAddr("127.0.0.1")
	p, err := measure.Launch(dir, "gateway", nil, cfg.XB, "gateway", "--servers", list, "--listen", address, "--data-dir", dir)
	if err != nil {
		return front.Front{}, err
	}
	f := front.Front{Name: "xb gateway", Base: "https://" + address, Servers: []*process.Process{p}, Close: func() { measure.End(p) }}
	err = measure.WaitFor(ctx, "xb gateway", func(ctx context.Context) error {
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
		if err != nil {
			return err
		}
		if f.Client == nil {
			if f.Client, err = rest.HTTPClientFor(config); err != nil {
				return err
			}
		}
		return serves(ctx, &f, servers*groups)
	})
	if err != nil {
		f.Close()
	}
	return f, err
}

// serves is nil once discovery has all groups of the stub and the last of them
// answers.
func serves(ctx context.Context, f *front.Front, groups int) error {
	body, err := f.Get(ctx, "/apis")
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
	_, err = f.Get(ctx, fmt.Sprintf("/apis/g%d.example.com/v1/namespaces/default/widgets/w", groups-1))
	return err
}

// startAggregator puts a kube-apiserver before the stub, by an APIService.
func startAggregator(ctx context.Context, cfg measure.Config, dir string, s *stub) (front.Front, error) {
	dir = filepath.Join(dir, "aggregator")
	proxyCert, proxyKey, err := kubeserver.WriteCerts(filepath.Join(dir, "proxy"))
	if err != nil {
		return front.Front{}, err
	}
	c, err := kubeserver.StartKubeWith(ctx, cfg, dir, "--proxy-client-cert-file", proxyCert, "--proxy-client-key-file", proxyKey, "--requestheader-client-ca-file", proxyCert)
	if err != nil {
		return front.Front{}, err
	}
	f := front.Front{Name: "kube-aggregator", Base: c.Config.Host, Servers: c.Servers, Close: c.Stop}
	config := rest.CopyConfig(c.Config)
	config.QPS = -1
	if f.Client, err = rest.HTTPClientFor(config); err == nil {
		err = registerStub(ctx, config, s)
	}
	if err == nil {
		err = measure.WaitFor(ctx, "the aggregated API", func(ctx context.Context) error {
			_, err := f.Get(ctx, widgetsPath+"default/widgets/w")
			return err
		})
	}
	if err != nil {
		f.Close()
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
func startMany(ctx context.Context, cfg measure.Config, dir string, s *stub) (measure.Sample, error) {
	dir = filepath.Join(dir, "many")
	if err := os.RemoveAll(dir); err != nil {
		return measure.Sample{}, err
	}
	began := time.Now()
	f, err := launchGateway(ctx, cfg, dir, s, manyServers, groupsOfEach)
	if err != nil {
		return measure.Sample{}, err
	}
	defer f.Close()
	took := time.Since(began)
	u, err := process.UsageOf(f.Servers...)
	return measure.Sample{PerSecond: 1 / took.Seconds(), P50: took, P99: took, CPUPerOp: u.CPU, PeakMemory: u.Peak}, err
}

// events opens the watches, and measures each event from when the stub sent it.
func events(ctx context.Context, f *front.Front, s *stub, length time.Duration) (measure.Sample, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for range idleWatches {
		resp, err := f.Do(ctx, widgetsPath+"idle/widgets?watch=true")
		if err != nil {
			return measure.Sample{}, err
		}
		wg.Go(func() { io.Copy(io.Discard, resp.Body); resp.Body.Close() }) //nolint:errcheck // it ends when it is told to
	}
	var measuring atomic.Bool
	took := make([][]time.Duration, hotWatches)
	for i := range hotWatches {
		resp, err := f.Do(ctx, widgetsPath+"hot/widgets?watch=true")
		if err != nil {
			return measure.Sample{}, err
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
	before, err := process.UsageOf(f.Servers...)
	if err != nil {
		return measure.Sample{}, err
	}
	start := time.Now()
	measuring.Store(true)
	time.Sleep(length)
	measuring.Store(false)
	elapsed := time.Since(start)
	after, err := process.UsageOf(f.Servers...)
	if err != nil {
		return measure.Sample{}, err
	}
	cancel()
	wg.Wait()
	var all []time.Duration
	for _, t := range took {
		all = append(all, t...)
	}
	if len(all) == 0 {
		return measure.Sample{}, errors.New("no event came")
	}
	return measure.Sample{
		PerSecond: float64(len(all)) / elapsed.Seconds(), P50: measure.Percentile(all, 50), P99: measure.Percentile(all, 99),
		CPUPerOp: (after.CPU - before.CPU) / time.Duration(len(all)), PeakMemory: after.Peak,
	}, nil
}
