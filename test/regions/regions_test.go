package regions

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/test/lab/wait"
)

var (
	seed   = flag.Uint64("regions.seed", uint64(time.Now().UnixNano()), "chooses what the clients ask for and which faults there are")
	rounds = flag.Int("regions.faults", 6, "how many faults there are before one region is out")
)

// TestFiveRegions: clients on three continents race for the same names, while they, the agents
// and the servers are killed, regions lose sight of each other, one is out for a while, and one is
// removed while its clients work, and joins again as new. No name has two owners at any moment;
// what clients were told is so; the other regions answer while one is out; and in the end nothing
// is half done, neither in the regions nor on the service clusters.
func TestFiveRegions(t *testing.T) {
	t.Logf("-regions.seed %d", *seed)
	w := newWorld(t)
	w.populate()
	through := w.serve()
	c := &clients{w: w, dir: t.TempDir()}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	g, busy := errgroup.WithContext(ctx)
	g.Go(func() error { return c.run(busy, *seed) })
	watching, unwatch := context.WithCancel(t.Context())
	defer unwatch()
	rivalry := make(chan error, 1)
	go func() {
		compared, found := w.observe(watching)
		if found != "" {
			stop()
			rivalry <- fmt.Errorf("%s", found)
			return
		}
		t.Logf("%d readings of all regions were compared with the next", compared)
		rivalry <- nil
	}()

	rng := rand.New(rand.NewPCG(*seed, 1)) //nolint:gosec // it must be repeatable
	for range *rounds {
		w.fault(busy, rng)
	}
	w.outage(busy, through)
	w.removal(busy)
	stop()
	w.must(g.Wait())
	t.Logf("what the clients were told, by exit code: %v; %d were killed", c.counts(), c.killed.Load())

	w.rests(c)
	unwatch()
	w.must(<-rivalry)
	w.followed()
	w.succeeded()
}

// fault makes one fault, and takes it back.
func (w *world) fault(ctx context.Context, rng *rand.Rand) {
	w.Helper()
	region := slices.Sorted(maps.Keys(w.regions))[rng.IntN(len(w.regions))]
	lasts := time.Second + time.Duration(rng.Int64N(int64(3*time.Second)))
	pause := func() { _ = wait.For(ctx, lasts) } // if ctx ends, the test says why
	switch rng.IntN(5) {
	case 0:
		w.Logf("the server of %s is killed, for %s", region, lasts)
		s := w.regions[region]
		s.Kill()
		pause()
		w.restart(s)
		w.ready(s)
	case 1:
		w.Logf("the agent of %s is killed", region)
		w.agents[region].Kill()
		pause()
		w.agent(region, "")
	case 2:
		w.Logf("the store of %s is killed, for %s", stock, lasts)
		store := w.regions[stock].store
		store.Kill()
		pause()
		store.Restart(w)
	default:
		from := []string{"eu", "us", "ap"}[rng.IntN(3)]
		w.Logf("the way from %s to %s is cut, for %s", from, region, lasts)
		w.links[from][region].cut(w.T)
		pause()
		w.links[from][region].heal(w.T)
	}
	pause()
}

// outage has Tokyo be out. Whatever has its home elsewhere is reached through the facade, without
// a failed request.
func (w *world) outage(ctx context.Context, through *facade) {
	w.Helper()
	w.Log("tokyo is out")
	tokyo := w.regions["tokyo"]
	w.agents["tokyo"].Kill()
	tokyo.Kill()
	ctx, cancel := context.WithTimeout(ctx, 12*time.Second)
	defer cancel()
	answered, err := through.leads(ctx, []string{"/serviceclusters/louvre", "/regions/paris", "/regions/milan", "/regions/boston", "/regions/quito"})
	if err != nil {
		w.Errorf("while tokyo is out, a request to another region fails: %v", err)
	}
	w.Logf("%d requests were answered meanwhile", answered)
	w.restart(tokyo)
	w.ready(tokyo)
	w.agent("tokyo", "")
}

// removal has Milan be removed, although it works and its clients and agent go on: until it has
// joined again, as new, what it has stored counts for nothing.
func (w *world) removal(ctx context.Context) {
	w.Helper()
	w.Logf("%s is removed", removable)
	w.removed.Store(true)
	w.run("us", "region", "remove", removable, "--gone")
	_ = wait.For(ctx, 5*time.Second) // others take and give names meanwhile
	records, err := w.regions[removable].operations(w.Context())
	w.must(err)
	w.void = records
	w.Logf("it joins again; %d records of its are void", len(records))
	w.run("us", "region", "join", removable)
	w.removed.Store(false)
	_ = wait.For(ctx, 5*time.Second)
}

// rests waits until the agents have ended whatever was left behind. Then nothing is half done, and
// what the clients were told is so.
func (w *world) rests(c *clients) {
	w.Helper()
	left := 0
	var now snapshot
	w.comes("nothing is half done", func(ctx context.Context) error {
		open := w.unfinished()
		left = max(left, len(open))
		if len(open) > 0 {
			return fmt.Errorf("not ended: %+v", open)
		}
		if now = w.snapshot(ctx); w.whole(now) != "" {
			return errors.New(w.whole(now))
		}
		return nil
	})
	w.Logf("%d operations were left behind", left)
	records := map[string]operation{}
	for _, s := range w.regions {
		found, err := s.operations(w.Context())
		w.must(err)
		maps.Copy(records, found)
	}
	if wrong := c.kept(records, w.void); wrong != "" {
		w.Error(wrong)
	}
	if wrong := balanced(records, w.void, now["paris"]); wrong != "" {
		w.Error(wrong)
	}
	w.Logf("%d operations were asked for; names with an owner: %d", len(records), len(now["paris"]))
	w.run("eu", "region", "collect")
	for _, s := range w.regions {
		if found, err := s.operations(w.Context()); err != nil || len(found) != 0 {
			w.Errorf("once they are collected, %s has the records %v, %v", s.name, found, err)
		}
	}
	if half := w.whole(w.snapshot(w.Context())); half != "" {
		w.Error(half)
	}
}

// unfinished are the operations that have not ended, as xb region status shows them.
func (w *world) unfinished() []any {
	w.Helper()
	var status struct{ Unfinished []any }
	w.must(json.Unmarshal([]byte(w.run("eu", "region", "status", "-o", "json")), &status))
	return status.Unfinished
}

// made says with which operation's ID an agent has marked what it made.
func made(n corev1.Namespace) string { return n.Annotations["region.xbernetes.io/operation"] }

// labelled are the namespaces that agents have made on a server, by the account.
func (s *server) labelled(ctx context.Context) (map[string]string, error) {
	all, err := s.kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: "region.xbernetes.io/account"})
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, n := range all.Items {
		account := n.Labels["region.xbernetes.io/account"]
		if _, twice := found[account]; twice {
			return nil, fmt.Errorf("%s has two namespaces of account %s", s.name, account)
		}
		found[account] = made(n)
	}
	return found, nil
}

// followed waits until each account has its namespace in each region, and each assignment has one
// on its service cluster, made for this owner of the name, and nobody else has any.
func (w *world) followed() {
	w.Helper()
	claims, err := w.regions["paris"].claims(w.Context())
	w.must(err)
	accounts := names(claims, "Account")
	for name, s := range w.regions {
		w.comes("the namespaces of "+name, func(ctx context.Context) error {
			found, err := s.labelled(ctx)
			if err == nil && !maps.Equal(found, accounts) {
				err = fmt.Errorf("%s has the namespaces %v, want %v", name, found, accounts)
			}
			return err
		})
		w.comes("the bindings of "+name, func(ctx context.Context) error {
			all, err := s.kube.RbacV1().RoleBindings("").List(ctx, metav1.ListOptions{LabelSelector: "region.xbernetes.io/account"})
			if err != nil {
				return err
			}
			for _, b := range all.Items {
				if account := b.Labels["region.xbernetes.io/account"]; account != b.Namespace || accounts[account] == "" {
					return fmt.Errorf("%s has an orphan binding %s in %s", name, b.Name, b.Namespace)
				}
			}
			return nil
		})
	}
	for name, s := range w.clusters {
		want := map[string]string{}
		for assignment, owner := range names(claims, "ServiceClusterAssignment") {
			if cluster, account, _ := strings.Cut(assignment, "/"); cluster == name {
				want[account] = owner
			}
		}
		w.comes("the namespaces on "+name, func(ctx context.Context) error {
			found, err := s.labelled(ctx)
			if err == nil && !maps.Equal(found, want) {
				err = fmt.Errorf("%s has the namespaces %v, want %v", name, found, want)
			}
			return err
		})
	}
}

// succeeded kills that of the two agents of Paris which is elected: the other goes on, and did
// nothing before.
func (w *world) succeeded() {
	w.Helper()
	ctx, paris := w.Context(), w.regions["paris"]
	lease, err := paris.kube.CoordinationV1().Leases("xb-region").Get(ctx, "xb-region-agent", metav1.GetOptions{})
	w.must(err)
	leader := *lease.Spec.HolderIdentity
	w.agents[leader].Kill()
	w.run("us", "account", "create", "successor", "--role", "tenant", "--region", "boston")
	w.comes("the namespace that the other agent makes", func(ctx context.Context) error {
		_, err := paris.kube.CoreV1().Namespaces().Get(ctx, "successor", metav1.GetOptions{})
		return err
	})
	lease, err = paris.kube.CoordinationV1().Leases("xb-region").Get(ctx, "xb-region-agent", metav1.GetOptions{})
	w.must(err)
	if now := *lease.Spec.HolderIdentity; now == leader || now == "" {
		w.Errorf("the agent that is elected was %q, and is %q once that was killed", leader, now)
	}
}
