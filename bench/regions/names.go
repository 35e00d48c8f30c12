package regions

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/xbernetes/xbernetes/bench/front"
	"github.com/xbernetes/xbernetes/bench/kubeserver"
	"github.com/xbernetes/xbernetes/bench/measure"
	"github.com/xbernetes/xbernetes/test/lab/network"
	"github.com/xbernetes/xbernetes/test/lab/process"
	"github.com/xbernetes/xbernetes/test/lab/program"
)

var (
	regionCounts = []int{2, 3, 5, 10}
	roundTrips   = []time.Duration{0, 80 * time.Millisecond, 200 * time.Millisecond}
)

// layouts are the ways to configure regions, and where a central store is.
var layouts = []layout{
	{name: "no central store"},
	{name: "a central store near", central: true, near: true},
	{name: "a central store far", central: true},
}

type layout struct {
	name    string
	central bool
	near    bool // the central store is beside the first region
}

// Names measures how long it takes until a name has its owner in all regions: of accounts and
// assignments, over ever more regions, from a facade beside the first one. All others are as
// far from it as the workload says, and so is a central store that is far.
func Names(ctx context.Context, cfg measure.Config) ([]measure.Comparison, error) {
	var rows []*measure.Comparison
	for _, l := range layouts {
		some, err := names(ctx, cfg, l)
		rows = append(rows, some...)
		if err != nil {
			return measure.Values(rows), err
		}
	}
	return measure.Values(rows), nil
}

func names(ctx context.Context, cfg measure.Config, l layout) ([]*measure.Comparison, error) {
	w, err := newWorld(ctx, cfg, l, regionCounts[len(regionCounts)-1])
	if err != nil {
		return nil, err
	}
	defer w.close()
	systems := make([]string, len(regionCounts))
	for i, n := range regionCounts {
		systems[i] = fmt.Sprintf("%d regions", n)
	}
	var rows []*measure.Comparison
	at := map[string]*measure.Comparison{}
	for _, r := range roundTrips {
		for _, s := range steps {
			row := measure.NewComparison(fmt.Sprintf("%s, %s, %d ms", s.name, l.name, r.Milliseconds()), systems...)
			rows, at[s.name+r.String()] = append(rows, row), row
		}
	}
	joined := 0
	for i, n := range regionCounts {
		for ; joined < n; joined++ {
			if err := w.join(ctx, joined); err != nil {
				return rows, err
			}
		}
		for _, r := range roundTrips {
			fmt.Fprintf(os.Stderr, "regions-names: %s, %d regions, %v\n", l.name, n, r)
			f, err := w.facade(ctx, cfg, r)
			if err != nil {
				return rows, err
			}
			err = w.measure(ctx, cfg, &f, func(step string, m measure.Sample) { at[step+r.String()].Add(systems[i], m) })
			f.Close()
			if err != nil {
				return rows, fmt.Errorf("%d regions, %v: %w", n, r, err)
			}
		}
	}
	return rows, nil
}

// measure takes each step with some names, once all connections are open.
func (w *world) measure(ctx context.Context, cfg measure.Config, f *front.Front, note func(step string, m measure.Sample)) error {
	for _, s := range steps {
		if err := s.do(ctx, f, "first"); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	for _, s := range steps {
		m, err := measure.Drive(ctx, w.processes(), 1, max(1, int(20*cfg.Scale)), func(ctx context.Context, _, k int) error {
			return s.do(ctx, f, fmt.Sprintf("team-%d", k))
		})
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		note(s.name, m)
	}
	return nil
}

// steps are what is measured, in this order.
var steps = []struct {
	name string
	do   func(ctx context.Context, f *front.Front, account string) error
}{
	{"create an account", func(ctx context.Context, f *front.Front, account string) error {
		return send(ctx, f, http.MethodPost, "accounts", object("Account", account, map[string]any{"region": place(0), "roles": []string{"Tenant"}}))
	}},
	{"create an assignment", func(ctx context.Context, f *front.Front, account string) error {
		return send(ctx, f, http.MethodPost, "serviceclusterassignments", object("ServiceClusterAssignment", cluster+"."+account,
			map[string]any{"region": place(0), "serviceCluster": cluster, "account": account}))
	}},
	{"delete an assignment", func(ctx context.Context, f *front.Front, account string) error {
		return send(ctx, f, http.MethodDelete, "serviceclusterassignments/"+cluster+"."+account, nil)
	}},
	{"delete an account", func(ctx context.Context, f *front.Front, account string) error {
		return send(ctx, f, http.MethodDelete, "accounts/"+account, nil)
	}},
}

const (
	cluster = "tokyo"
	group   = "region.xbernetes.io/v1alpha1"
)

func object(kind, name string, spec map[string]any) map[string]any {
	return map[string]any{"apiVersion": group, "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec}
}

// send sends a request about names to a facade.
func send(ctx context.Context, f *front.Front, method, path string, body map[string]any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, f.Base+"/apis/"+group+"/"+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := f.Client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err == nil && resp.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, answer)
	}
	return err
}

func place(i int) string { return fmt.Sprintf("r%d", i) }

// world is the servers of all regions and of the central store, which all take the same token.
type world struct {
	cfg     measure.Config
	dir     string
	layout  layout
	servers []*kubeserver.Cluster // the last one is the central store, if there is one
	token   string
	closers []func()
}

// newWorld starts the servers of some regions, and of the central store.
func newWorld(ctx context.Context, cfg measure.Config, l layout, regions int) (w *world, err error) {
	w = &world{cfg: cfg, dir: filepath.Join(cfg.Dir, "names"), layout: l}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if err := os.RemoveAll(w.dir); err != nil {
		return w, err
	}
	authentication, err := w.issue(ctx)
	if err != nil {
		return w, err
	}
	count := regions
	if l.central {
		count++
	}
	for i := range count {
		s, err := kubeserver.StartXBWith(ctx, cfg, filepath.Join(w.dir, place(i)), nil, "--authentication-config", authentication)
		if err != nil {
			return w, err
		}
		w.servers = append(w.servers, s)
		if err := admit(ctx, s); err != nil {
			return w, err
		}
	}
	return w, w.list("regions.yaml", func(i int) (string, error) { return filepath.Join(w.dir, place(i), "kubeconfig"), nil })
}

// issue starts the example's issuer of tokens, and returns the file that has servers take them.
func (w *world) issue(ctx context.Context) (authentication string, err error) {
	issuer, dir := filepath.Join(program.Repository(), "examples", "regions", "issuer"), filepath.Join(w.dir, "issuer")
	if out, err := exec.CommandContext(ctx, issuer, "serve", dir).CombinedOutput(); err != nil {
		return "", fmt.Errorf("start the issuer: %w: %s", err, out)
	}
	w.closers = append(w.closers, func() { _ = exec.Command("pkill", "--pidfile", filepath.Join(dir, "pid")).Run() })
	token, err := exec.CommandContext(ctx, issuer, "token", dir, user).Output()
	if err != nil {
		return "", fmt.Errorf("issue a token: %w", err)
	}
	w.token = strings.TrimSpace(string(token))
	return filepath.Join(dir, "authentication.yaml"), nil
}

const user = "bench"

// admit lets the user do everything at a server.
func admit(ctx context.Context, s *kubeserver.Cluster) error {
	client, err := s.Client()
	if err != nil {
		return err
	}
	_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	return err
}

// list writes a file of regions, with the kubeconfig that each is reached by.
func (w *world) list(file string, kubeconfig func(i int) (string, error)) error {
	regions, first := map[string]string{}, map[string]any{"register": place(0)}
	for i := range w.servers {
		path, err := kubeconfig(i)
		if err != nil {
			return err
		}
		if w.isCentral(i) {
			first = map[string]any{"central": path}
		} else {
			regions[place(i)] = path
		}
	}
	first["regions"] = regions
	text, err := json.Marshal(first) // which is YAML
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(w.dir, file), text, 0o600)
}

// isCentral says whether a server is the central store.
func (w *world) isCentral(i int) bool { return w.layout.central && i == len(w.servers)-1 }

// join has a region join. The first one gets the service cluster.
func (w *world) join(ctx context.Context, i int) error {
	commands := [][]string{{"region", "join", place(i)}}
	if i == 0 {
		commands = append(commands, []string{"servicecluster", "create", cluster, "--region", place(0)})
	}
	for _, args := range commands {
		if out, err := exec.CommandContext(ctx, w.cfg.XB, append(args, "--regions", filepath.Join(w.dir, "regions.yaml"))...).CombinedOutput(); err != nil {
			return fmt.Errorf("xb %v: %w: %s", args, err, out)
		}
	}
	return nil
}

// facade starts a facade beside the first region. A round trip to every other region takes r.
func (w *world) facade(ctx context.Context, cfg measure.Config, r time.Duration) (front.Front, error) {
	var proxies []func()
	end := func() {
		for _, stop := range proxies {
			stop()
		}
	}
	file := fmt.Sprintf("regions-%d.yaml", r.Milliseconds())
	err := w.list(file, func(i int) (string, error) {
		near := filepath.Join(w.dir, place(i), "kubeconfig")
		if i == 0 || r == 0 || w.isCentral(i) && w.layout.near {
			return near, nil
		}
		far := fmt.Sprintf("%s-%d", near, r.Milliseconds())
		stop, err := reach(near, far, r)
		if err == nil {
			proxies = append(proxies, stop)
		}
		return far, err
	})
	if err != nil {
		end()
		return front.Front{}, err
	}
	f, err := serve(ctx, cfg, w.dir, filepath.Join(w.dir, file), w.token)
	if err != nil {
		end()
		return front.Front{}, err
	}
	stop := f.Close
	f.Close = func() { stop(); end() }
	return f, nil
}

// reach writes a kubeconfig that leads through a proxy, by which a round trip takes r longer.
func reach(near, far string, r time.Duration) (stop func(), err error) {
	config, err := clientcmd.LoadFromFile(near)
	if err != nil {
		return nil, err
	}
	for _, c := range config.Clusters {
		server, err := url.Parse(c.Server)
		if err != nil {
			return nil, err
		}
		if server.Host, stop, err = measure.Delay(server.Host, r); err != nil {
			return nil, err
		}
		c.Server = server.String()
	}
	return stop, clientcmd.WriteToFile(*config, far)
}

func (w *world) processes() (all []*process.Process) {
	for _, s := range w.servers {
		all = append(all, s.Servers...)
	}
	return all
}

func (w *world) close() {
	for _, s := range w.servers {
		s.Stop()
	}
	for _, f := range w.closers {
		f()
	}
}

// serve starts a facade on a file of regions, and returns the way to it for a token.
func serve(ctx context.Context, cfg measure.Config, dir, list, token string) (front.Front, error) {
	address, own := network.FreeAddr("127.0.0.1"), filepath.Join(dir, "facade")
	if err := os.RemoveAll(own); err != nil {
		return front.Front{}, err
	}
	p, err := measure.Launch(dir, "facade", nil, cfg.XB, "region", "serve", "--regions", list, "--listen", address, "--data-dir", own, "--listen-metrics", "")
	if err != nil {
		return front.Front{}, err
	}
	f := front.Front{Name: "facade", Base: "https://" + address, Servers: []*process.Process{p}, Close: func() { measure.End(p) }}
	err = measure.WaitFor(ctx, "the facade", func(ctx context.Context) error {
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(own, "kubeconfig"))
		if err != nil {
			return err
		}
		config.BearerToken = token
		if f.Client == nil {
			if f.Client, err = rest.HTTPClientFor(config); err != nil {
				return err
			}
		}
		_, err = f.Get(ctx, "/readyz")
		return err
	})
	if err != nil {
		f.Close()
	}
	return f, err
}
