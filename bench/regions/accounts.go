package regions

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/xbernetes/xbernetes/bench/measure"
	"github.com/xbernetes/xbernetes/test/lab/process"
)

const (
	accountRegions = 3
	accountClients = 16
)

// maker creates an account in all regions.
type maker func(ctx context.Context, name string) error

// Accounts measures how fast 1,000 accounts are made over three regions by 16 clients, beside a
// super-cluster: one server that has each account first, from which it is written to each region.
// A super-cluster makes a name unique because there is one of it; while it is away, nothing is made.
func Accounts(ctx context.Context, cfg measure.Config) ([]measure.Comparison, error) {
	systems := []struct {
		name   string
		layout layout
		make   func(w *world, r time.Duration) (maker, []*process.Process, func(), error)
	}{
		{"no central store", layout{name: "none"}, throughFacade(ctx, cfg)},
		{"a central store near", layout{name: "near", central: true, near: true}, throughFacade(ctx, cfg)},
		{"a super-cluster", layout{name: "super", central: true}, superCluster},
	}
	var rows []*measure.Comparison
	for _, r := range roundTrips[:2] {
		rows = append(rows, measure.NewComparison(fmt.Sprintf("create an account in %d regions, %d clients, %d ms", accountRegions, accountClients, r.Milliseconds()),
			systems[0].name, systems[1].name, systems[2].name))
	}
	for _, s := range systems {
		err := func() error {
			w, err := joined(ctx, cfg, s.layout, accountRegions)
			if err != nil {
				return err
			}
			defer w.close()
			for i, r := range roundTrips[:2] {
				fmt.Fprintf(os.Stderr, "regions-accounts: %s, %v\n", s.name, r)
				create, more, stop, err := s.make(w, r)
				if err != nil {
					return err
				}
				m, err := measure.Drive(ctx, append(w.processes(), more...), accountClients, max(accountClients, int(1000*cfg.Scale)),
					func(ctx context.Context, _, k int) error { return create(ctx, fmt.Sprintf("team-%d-%d", i, k)) })
				stop()
				if err != nil {
					return err
				}
				rows[i].Add(s.name, m)
			}
			return nil
		}()
		if err != nil {
			return measure.Values(rows), fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return measure.Values(rows), nil
}

// joined returns a world in which all regions have joined.
func joined(ctx context.Context, cfg measure.Config, l layout, regions int) (*world, error) {
	w, err := newWorld(ctx, cfg, l, regions)
	if err != nil {
		return nil, err
	}
	for i := range regions {
		if err := w.join(ctx, i); err != nil {
			w.close()
			return nil, err
		}
	}
	return w, nil
}

// throughFacade has a facade beside the first region create accounts.
func throughFacade(ctx context.Context, cfg measure.Config) func(*world, time.Duration) (maker, []*process.Process, func(), error) {
	return func(w *world, r time.Duration) (maker, []*process.Process, func(), error) {
		f, err := w.facade(ctx, cfg, r)
		return func(ctx context.Context, name string) error { return steps[0].do(ctx, &f, name) }, f.Servers, f.Close, err
	}
}

// superCluster plays the controllers of a super-cluster, which is as far from the client as all
// regions but one: an object is written there, and then one in each region.
func superCluster(w *world, r time.Duration) (maker, []*process.Process, func(), error) {
	var clients []kubernetes.Interface
	var proxies []func()
	stop := func() {
		for _, end := range proxies {
			end()
		}
	}
	for i := range w.servers {
		path := filepath.Join(w.dir, place(i), "kubeconfig")
		if i > 0 && r > 0 {
			far := path + "-super"
			end, err := reach(path, far, r)
			if err != nil {
				return nil, nil, stop, err
			}
			path, proxies = far, append(proxies, end)
		}
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			return nil, nil, stop, err
		}
		config.QPS = -1
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, nil, stop, err
		}
		clients = append(clients, client)
	}
	write := func(ctx context.Context, c kubernetes.Interface, name string) error {
		_, err := c.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"region": place(0)}}, metav1.CreateOptions{})
		return err
	}
	center, regions := clients[len(clients)-1], clients[:len(clients)-1]
	return func(ctx context.Context, name string) error {
		if err := write(ctx, center, name); err != nil {
			return err
		}
		var all errgroup.Group
		for _, region := range regions {
			all.Go(func() error { return write(ctx, region, name) })
		}
		return all.Wait()
	}, nil, stop, nil
}

// FacadeMemory measures what a facade takes of memory where 10,000 accounts are: while 16 clients
// get accounts, and while one lists all of them. Of lists it reads few at once.
func FacadeMemory(ctx context.Context, cfg measure.Config) ([]measure.Comparison, error) {
	count := max(accountClients, int(10_000*cfg.Scale))
	var rows []*measure.Comparison
	w, err := joined(ctx, cfg, layouts[0], 2)
	if err != nil {
		return nil, err
	}
	defer w.close()
	f, err := w.facade(ctx, cfg, 0)
	if err != nil {
		return nil, err
	}
	defer func() { f.Close() }()
	take := func(what string, clients, total int, op func(ctx context.Context, client, i int) error) error {
		fmt.Fprintf(os.Stderr, "regions-memory: %s\n", what)
		m, err := measure.Drive(ctx, f.Servers, clients, total, op)
		row := measure.NewComparison(what, "facade")
		row.Add("facade", m)
		rows = append(rows, row)
		return err
	}
	err = take(fmt.Sprintf("create %d accounts", count), accountClients, count, func(ctx context.Context, _, k int) error { return steps[0].do(ctx, &f, fmt.Sprintf("team-%d", k)) })
	if err != nil {
		return measure.Values(rows), err
	}
	f.Close() // another, so that its memory is that of reading alone
	if f, err = w.facade(ctx, cfg, 0); err != nil {
		return measure.Values(rows), err
	}
	err = errors.Join(
		take(fmt.Sprintf("get one of %d accounts", count), accountClients, 1000, func(ctx context.Context, _, k int) error {
			return send(ctx, &f, http.MethodGet, fmt.Sprintf("accounts/team-%d", k%count), nil)
		}),
		take(fmt.Sprintf("list %d accounts", count), 1, 20, func(ctx context.Context, _, _ int) error {
			return send(ctx, &f, http.MethodGet, "accounts", nil)
		}))
	return measure.Values(rows), err
}
