package servicesync

import (
	"context"
	"fmt"
	"slices"
	"strings"
	gosync "sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/xbernetes/xbernetes/test/lab/cluster"
)

// A move is a Service that is called by its name in two clusters all the while,
// and moved between them.
type move struct {
	t           *testing.T
	a, b        *cluster.Cluster
	ns          string
	podA, podB  *cluster.Pod
	controllers []*controller
	callers     []*cluster.Caller
}

// newMove has the Service web in a, its only pod there, and callers in both
// clusters. Where kills is true, controllers are killed after each of their writes.
func newMove(t *testing.T, kills bool) *move {
	t.Helper()
	m := &move{t: t}
	m.a, m.b = nodes(t)
	m.ns = namespaceIn(t, namespaceName(t), m.a, m.b)
	env := []string{"NSTOWATCH=" + m.ns}
	t.Cleanup(m.show)
	if kills {
		m.controllers = killedAtWrites(t, env, m.a, m.b)
	} else {
		m.controllers = startAll(t, env, nil, m.a, m.b)
	}
	createService(t, m.a, m.ns, "web")
	m.podA = addPod(t, m.a, m.ns, "web", "web-a")
	m.expect(m.podA)
	for _, c := range []*cluster.Cluster{m.a, m.b} {
		m.call(c)
	}
	return m
}

// call calls the Service by its name from a cluster until the test ends, and
// fails the test if any call fails.
func (m *move) call(from *cluster.Cluster) {
	m.t.Helper()
	name := "web." + m.ns + ".svc.cluster.local"
	expectAnswer(within(m.t, patience()), m.t, from, name, m.podA.Name)
	caller, err := from.NewCaller(name, 80)
	if err != nil {
		m.t.Fatal(err)
	}
	caller.Start(context.Background(), 2, 20*time.Millisecond)
	m.callers = append(m.callers, caller)
	m.t.Cleanup(func() {
		caller.Stop()
		m.t.Logf("callers in %s: answered by %v", from.Name, caller.Answered())
		if n, err := caller.Failed(); n > 0 {
			m.t.Errorf("in %s, %d calls of %s failed:\n%v", from.Name, n, caller.URL, err)
		}
	})
}

// show tells, of a test that failed, where the migration stands.
func (m *move) show() {
	if !m.t.Failed() {
		return
	}
	for _, c := range []*cluster.Cluster{m.a, m.b} {
		s, err := c.Client.CoreV1().Services(m.ns).Get(context.Background(), "web", metav1.GetOptions{})
		if err != nil {
			m.t.Log(err)
			continue
		}
		m.t.Logf("%s: selector %v, annotations %v, labels %v", c.Name, s.Spec.Selector, s.Annotations, s.Labels)
		client, err := dynamic.NewForConfig(c.Config)
		if err != nil {
			m.t.Log(err)
			continue
		}
		published, err := client.Resource(leases.GroupVersion().WithResource("publishedservices")).Namespace(m.controllers[0].publications).
			List(context.Background(), metav1.ListOptions{})
		if err != nil {
			m.t.Log(err)
			continue
		}
		for _, p := range published.Items {
			delete(p.Object, "metadata")
			m.t.Logf("%s publishes %v", c.Name, p.Object)
		}
	}
}

// expect waits until both clusters send to the pods and no others.
func (m *move) expect(pods ...*cluster.Pod) {
	m.t.Helper()
	for _, c := range []*cluster.Cluster{m.a, m.b} {
		expectRotation(m.t, c, m.ns, "web", pods...)
	}
}

// answeredBy waits until callers everywhere are answered by the pod.
func (m *move) answeredBy(pod *cluster.Pod) {
	m.t.Helper()
	for _, caller := range m.callers {
		before := caller.Answered()[pod.Name]
		eventually(m.t, pod.Name+" answers", func(context.Context) error {
			if caller.Answered()[pod.Name] == before {
				return fmt.Errorf("callers of %s: %v", caller.URL, caller.Answered())
			}
			return nil
		})
	}
}

// heir starts the pod that takes over.
func (m *move) heir(in *cluster.Cluster, name string) *cluster.Pod {
	return addPod(m.t, in, m.ns, "web", name)
}

// selector is what the cluster's Service selects by.
func (m *move) selector(c *cluster.Cluster) map[string]string {
	return get(m.t.Context(), m.t, c, m.ns, "web").Spec.Selector
}

// restored waits until the cluster's Service has its selector back.
func (m *move) restored(c *cluster.Cluster) {
	m.t.Helper()
	expectService(m.t, c, m.ns, "web", func(s *corev1.Service) error {
		if s.Spec.Selector["app"] != "web" {
			return fmt.Errorf("its selector is %v", s.Spec.Selector)
		}
		return nil
	})
}

// migrations move a Service from a to b, and back.
var migrations = map[string]func(m *move){
	"receiver": func(m *move) {
		m.podB = m.heir(m.b, "web-b")
		annotate(m.t, m.a, m.ns, "web", mode, "receiver")
		m.expect(m.podB)
		m.answeredBy(m.podB)
		m.restored(m.b)
		annotate(m.t, m.b, m.ns, "web", mode, "receiver")
		m.expect(m.podA)
		m.answeredBy(m.podA)
		m.restored(m.a)
	},
	"receiver, undone from the same side": func(m *move) {
		m.podB = m.heir(m.b, "web-b")
		annotate(m.t, m.a, m.ns, "web", mode, "receiver")
		m.expect(m.podB)
		annotate(m.t, m.a, m.ns, "web", mode, "source")
		m.expect(m.podA)
		m.restored(m.a)
	},
	"source": func(m *move) {
		m.podB = m.heir(m.b, "web-b")
		annotate(m.t, m.b, m.ns, "web", mode, "source")
		m.expect(m.podB)
		m.answeredBy(m.podB)
		annotate(m.t, m.a, m.ns, "web", mode, "source")
		expectEvent(m.t, m.a, m.ns, "web", "TwoSources", m.b.Name)
		m.expect(m.podB) // a conflict changes no traffic
		annotate(m.t, m.b, m.ns, "web", mode, "")
		m.expect(m.podA)
		m.answeredBy(m.podA)
		m.restored(m.a)
	},
	"union": func(m *move) {
		m.podB = m.heir(m.b, "web-b")
		annotate(m.t, m.a, m.ns, "web", mode, "union")
		m.expect(m.podA, m.podB)
		m.answeredBy(m.podB)
		annotate(m.t, m.b, m.ns, "web", mode, "source")
		m.expect(m.podB)
		annotate(m.t, m.b, m.ns, "web", mode, "union")
		m.expect(m.podA, m.podB)
		annotate(m.t, m.a, m.ns, "web", mode, "source")
		m.expect(m.podA)
		m.restored(m.a)
	},
	"singular": func(m *move) {
		m.podB = m.heir(m.b, "web-b")
		annotate(m.t, m.a, m.ns, "web", mode, "receiver")
		m.expect(m.podB)
		// From here on each cluster is on its own: b has its pod, and a the one it had.
		annotate(m.t, m.a, m.ns, "web", mode, "singular")
		annotate(m.t, m.b, m.ns, "web", mode, "singular")
		expectRotation(m.t, m.a, m.ns, "web", m.podA)
		expectRotation(m.t, m.b, m.ns, "web", m.podB)
		annotate(m.t, m.b, m.ns, "web", mode, "receiver")
		annotate(m.t, m.a, m.ns, "web", mode, "source")
		m.expect(m.podA)
	},
}

func TestMigrate(t *testing.T) {
	for name, migrate := range migrations {
		t.Run(name, func(t *testing.T) { migrate(newMove(t, false)) })
	}
}

// TestMigrateThroughKills is TestMigrate with every controller killed after
// every write, whose answer it does not get.
func TestMigrateThroughKills(t *testing.T) {
	for name, migrate := range migrations {
		t.Run(name, func(t *testing.T) { migrate(newMove(t, true)) })
	}
}

// killedAtWrites starts controllers that are killed when a write of theirs has
// been done, before they hear of it, and started again at once. Only the
// renewal of a cluster's lease, which each start begins with, kills but once.
func killedAtWrites(t *testing.T, env []string, in ...*cluster.Cluster) []*controller {
	t.Helper()
	var all []*controller
	for _, own := range in {
		gate := newGate(t, own)
		c := newController(t, own, env, nil)
		c.local = c.peers + ".own"
		if err := own.WriteKubeconfig(c.local, gate.URL, own.Config.BearerToken); err != nil {
			t.Fatal(err)
		}
		for _, peer := range in {
			if peer != own {
				c.addPeer(t, peer, peer.Config.Host)
			}
		}
		c.start(t)
		killAtWrites(t, c, gate)
		all = append(all, c)
	}
	return all
}

// enoughKills is how often a write of the same object in the same way kills:
// one who never lives for a second never has seen anything for that long, and
// a handover waits for that.
const enoughKills = 8

// killAtWrites does so until the test ends.
func killAtWrites(t *testing.T, c *controller, gate *cluster.Gate) {
	ended := make(chan struct{})
	kill := make(chan string)
	var done gosync.WaitGroup
	var leases int
	var kills []string
	times := map[string]int{} // by write
	gate.OnWrite(func(_ int, write string) cluster.Verdict {
		if strings.Contains(write, "/clusterleases") {
			if leases++; leases != 3 {
				return cluster.Pass
			}
		}
		if times[write] >= enoughKills {
			return cluster.Pass
		}
		select {
		case kill <- write:
			times[write]++
			return cluster.LoseAnswer
		case <-ended:
			return cluster.Pass
		default: // it is being killed for another write, and this one comes too late
			return cluster.Lose
		}
	})
	done.Go(func() {
		for {
			select {
			case write := <-kill:
				kills = append(kills, write)
				c.Kill()
				c.start(t)
			case <-ended:
				return
			}
		}
	})
	t.Cleanup(func() {
		close(ended)
		done.Wait()
		t.Logf("the controller of %s was killed at %d writes:\n%s", c.own.Name, len(kills), strings.Join(kills, "\n"))
		if len(kills) < 3 {
			t.Errorf("the controller of %s was killed %d times only: the test shows nothing", c.own.Name, len(kills))
		}
	})
}

// TestRollingRestart restarts everything there is, one after the other, under
// a Service whose endpoints are in both clusters.
func TestRollingRestart(t *testing.T) {
	m := newMove(t, false)
	m.podB = m.heir(m.b, "web-b")
	annotate(t, m.a, m.ns, "web", mode, "union")
	m.expect(m.podA, m.podB)
	ctx := within(t, 10*time.Minute)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range m.controllers {
		must(c.Stop())
		c.start(t)
	}
	for _, c := range []*cluster.Cluster{m.a, m.b} {
		must(c.RestartAPIServer(ctx))
		must(c.RestartControllers(ctx))
		must(c.RestartProxy(ctx))
		must(c.RestartDNS(ctx))
	}
	for i := range 2 {
		next := m.heir(m.a, fmt.Sprintf("web-a%d", i+1))
		m.expect(m.podA, m.podB, next)
		must(m.podA.Remove(ctx, m.podA.Drain))
		m.podA = next
		next = m.heir(m.b, fmt.Sprintf("web-b%d", i+1))
		m.expect(m.podA, m.podB, next)
		must(m.podB.Remove(ctx, m.podB.Drain))
		m.podB = next
		m.expect(m.podA, m.podB)
		m.answeredBy(m.podA)
		m.answeredBy(m.podB)
	}
	if got := m.selector(m.a); got["app"] != "web" {
		t.Errorf("the selector is %v", got)
	}
}

// TestPeerIsGone cuts one cluster off: the other keeps calling the last
// endpoints that it knows, which are marked as stale, and takes up the news
// when there is some.
func TestPeerIsGone(t *testing.T) {
	a, b := nodes(t)
	type cut struct {
		name string
		gate func(t *testing.T, own, far *controller) *cluster.Gate
		// Who imports knows of nobody where it starts while it is cut off. Then it
		// leaves everything as it is.
		blind bool
	}
	cuts := []cut{{"the importer cannot reach the peer", func(t *testing.T, _, far *controller) *cluster.Gate {
		gate := newGate(t, a)
		far.addPeer(t, a, gate.URL)
		return gate
	}, false}}
	if throughStore() {
		cuts = []cut{
			{"the importer cannot reach the store", func(t *testing.T, _, far *controller) *cluster.Gate { return far.storeBehindGate(t) }, true},
			{"the publisher cannot reach the store", func(t *testing.T, own, _ *controller) *cluster.Gate { return own.storeBehindGate(t) }, false},
		}
	}
	for _, c := range cuts {
		t.Run(c.name, func(t *testing.T) {
			ns := namespaceIn(t, namespaceName(t), a, b)
			env := []string{"NSTOWATCH=" + ns}
			own, far := newController(t, a, env, nil), newController(t, b, env, nil)
			own.addPeer(t, b, b.Config.Host)
			gate := c.gate(t, own, far)
			own.start(t)
			far.start(t)
			m := &move{t: t, a: a, b: b, ns: ns, controllers: []*controller{own, far}}
			createService(t, a, ns, "web")
			m.podA = addPod(t, a, ns, "web", "web-a")
			m.expect(m.podA)
			m.call(b)
			gate.Cut()
			if c.blind {
				expectMarks(t, b, ns, true)
			}
			far.Kill() // nothing that it remembers may be needed
			far.start(t)
			expectMarks(t, b, ns, true)
			next := m.heir(a, "web-a2")
			expectRotation(t, a, ns, "web", m.podA, next)
			gate.Mend()
			expectRotation(t, b, ns, "web", m.podA, next)
			expectMarks(t, b, ns, false)
		})
	}
}

// newGate opens a gate before a cluster's API server.
func newGate(t *testing.T, c *cluster.Cluster) *cluster.Gate {
	t.Helper()
	gate, err := c.NewGate()
	if err != nil {
		t.Fatal(err)
	}
	return gate
}

// storeBehindGate has the controller reach the store through a gate.
func (c *controller) storeBehindGate(t *testing.T) *cluster.Gate {
	t.Helper()
	store := world.clusters[2]
	gate := newGate(t, store)
	c.store = c.peers + ".store"
	if err := store.WriteKubeconfig(c.store, gate.URL, store.Config.BearerToken); err != nil {
		t.Fatal(err)
	}
	return gate
}

// expectMarks waits until slices of the Service web are marked as stale, or none is.
func expectMarks(t *testing.T, c *cluster.Cluster, ns string, want bool) {
	t.Helper()
	eventually(t, fmt.Sprintf("it is %v that endpoints are marked as stale", want), func(ctx context.Context) error {
		all, err := slicesOf(ctx, c, ns, "web")
		marked := slices.ContainsFunc(all, func(s discoveryv1.EndpointSlice) bool {
			return s.Annotations["servicesync.xbernetes.io/stale"] != ""
		})
		if err == nil && marked != want {
			err = fmt.Errorf("of %d slices", len(all))
		}
		return err
	})
}
