package servicesync

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/test/lab/cluster"
	"github.com/xbernetes/xbernetes/test/lab/process"
	"github.com/xbernetes/xbernetes/test/lab/program"
	"github.com/xbernetes/xbernetes/test/lab/wait"
)

// A controller is one xb servicesync, that of a cluster. With XB_ORIGINAL, the
// path of a build of the k8s-endpoints-sync-controller that this product
// follows, it is that one, to see the faults that the tests are named after.
type controller struct {
	*process.Process
	own   *cluster.Cluster
	peers string // folder of the peers' kubeconfigs
	local string // kubeconfig of its own cluster
	lease string // how long its silence says nothing
	store string // kubeconfig of the store, if they meet there

	strict bool // peers may do nothing here but be used

	publications string // namespace of what it publishes, of this test alone
	env          []string
	args         []string
}

// throughStore says that controllers meet in a store, not in each other's API:
// all tests hold for both. Gamma's API server is the store then.
func throughStore() bool { return os.Getenv("XB_TRANSPORT") == "store" }

// directOnly skips a test of what is only so where clusters read each other's
// API servers and publish in their own.
func directOnly(t *testing.T) {
	t.Helper()
	if throughStore() {
		t.Skip("it is about clusters that read each other's API servers")
	}
}

// startAll starts a controller in each of the clusters, peers of one another, until
// the test ends. env and args go to each.
func startAll(t testing.TB, env, args []string, in ...*cluster.Cluster) []*controller {
	t.Helper()
	all := make([]*controller, len(in))
	for i, own := range in {
		all[i] = newController(t, own, env, args)
		for _, peer := range in {
			if peer != own {
				all[i].addPeer(t, peer, peer.Config.Host)
			}
		}
		all[i].start(t)
	}
	return all
}

// newController prepares one without peers, and does not start it.
func newController(t testing.TB, own *cluster.Cluster, env, args []string) *controller {
	t.Helper()
	dir := t.TempDir()
	c := &controller{own: own, peers: filepath.Join(dir, "peers"), local: own.Kubeconfig(), lease: "40s", publications: "sync-" + fingerprint(t.Name()), env: env, args: args}
	if err := os.Mkdir(c.peers, 0o755); err != nil {
		t.Fatal(err)
	}
	if throughStore() {
		c.store = world.clusters[2].Kubeconfig()
	}
	return c
}

// fingerprint is a short name for a long one.
func fingerprint(name string) string {
	h := fnv.New32a()
	h.Write([]byte(name))
	return fmt.Sprintf("%08x", h.Sum32())
}

// addPeer has it import from a cluster, behind a URL.
func (c *controller) addPeer(t testing.TB, peer *cluster.Cluster, url string) {
	t.Helper()
	if err := peer.WriteKubeconfig(filepath.Join(c.peers, peer.Name), url, peer.Config.BearerToken); err != nil {
		t.Fatal(err)
	}
}

// start starts it, or starts it again.
func (c *controller) start(t testing.TB) {
	t.Helper()
	argv, env := c.command(t)
	c.Process = process.Spawn(t, nil, "servicesync-"+c.own.Name, append(env, c.env...), argv...)
	p := c.Process
	world.running.Store(p, true)
	t.Cleanup(func() { world.running.Delete(p) })
}

func (c *controller) command(t testing.TB) (argv, env []string) {
	t.Helper()
	if original := os.Getenv("XB_ORIGINAL"); original != "" {
		argv, env, err := c.own.Original(original, c.peers)
		if err != nil {
			t.Fatal(err)
		}
		return argv, env
	}
	argv = []string{program.Need(t, "xb"), "servicesync", "--kubeconfig", c.local, "--cluster", c.own.Name, "--namespace", c.publications,
		"--identity", "test", // it leads again at once where it was killed
		"--stable-for", "500ms", "--lease", c.lease, "--listen", ""}
	if !c.strict { // all peers are one's own
		argv = append(argv, "--allow", "*=claim,selector,NodePort,LoadBalancer,ExternalName", "--carry", "label:*,annotation:*")
	}
	if throughStore() {
		argv = append(argv, "--store", c.store)
	} else {
		argv = append(argv, "--peers", c.peers)
	}
	if level := os.Getenv("XB_LOG_LEVEL"); level != "" {
		argv = append(argv, "--log-level", level)
	}
	return append(argv, c.args...), nil
}

// eventually waits until check is nil, as long as all controllers live, for a minute at most: on an idle
// machine it takes milliseconds.
func eventually(t testing.TB, what string, check func(context.Context) error) {
	t.Helper()
	await(t, patience(), what, check)
}

// slowly is eventually for what takes Kubernetes half a minute at its best.
func slowly(t testing.TB, what string, check func(context.Context) error) {
	t.Helper()
	await(t, 5*time.Minute, what, check)
}

func await(t testing.TB, patience time.Duration, what string, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := wait.Until(ctx, what, func(ctx context.Context) error {
		for p := range world.running.Range {
			if err := p.(*process.Process).Died(); err != nil {
				return err
			}
		}
		return check(ctx)
	}); err != nil {
		t.Fatal(err)
	}
}
