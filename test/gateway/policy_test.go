package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/xbernetes/xbernetes/test/gateway/world"
	"github.com/xbernetes/xbernetes/test/lab/wait"
)

// A guarded world is an xb server whose namespaces, rights and quotas count, a
// sample-apiserver that has no quotas, and two gateways before it.
type guarded struct {
	dir      string
	core     *world.Server
	sample   *world.Server
	gateways [2]*world.Server
}

func startGuarded(t *testing.T) *guarded {
	t.Helper()
	g := &guarded{dir: t.TempDir()}
	g.core = world.StartXB(t, g.dir)
	g.core.Await(t)
	g.core.Kubectl(t, "", "create", "serviceaccount", "caller")
	g.core.Kubectl(t, "", "create", "clusterrolebinding", "caller", "--clusterrole=cluster-admin", "--serviceaccount=default:caller")
	token := strings.TrimSpace(g.core.Kubectl(t, "", "create", "token", "caller", "--duration=2h"))
	g.sample = world.StartSample(t, g.dir, g.core.Kubeconfig)
	g.sample.Kubeconfig = filepath.Join(g.dir, "sample.kubeconfig")
	world.WriteKubeconfig(t, g.sample.Kubeconfig, g.sample.URL, g.sample.CAFile, token)
	g.sample.Await(t)

	servers := filepath.Join(g.dir, "servers.yaml")
	world.WriteFile(t, servers, world.Entry(t, "sample", g.sample.URL, g.sample.CAFile, "groups: ["+flunders.Group+"]",
		"identity: {mode: Impersonate, credentials: {kubeconfig: "+g.sample.Kubeconfig+"}}",
		"guard: {namespaces: true, authorization: true, quota: true}"))
	for i := range g.gateways {
		g.gateways[i] = world.StartGateway(t, g.dir, fmt.Sprintf("gateway-%d", i), g.core.Kubeconfig, token, "--servers", servers, "--core-kubeconfig", g.core.Kubeconfig)
		wait.Poll(t, time.Minute, "flunders are served", func(ctx context.Context) error {
			_, dyn := g.gateways[i].Clients(t)
			_, err := dyn.Resource(flunders).List(ctx, metav1.ListOptions{})
			return err
		})
	}
	return g
}

const flunderQuota = corev1.ResourceName("count/flunders.wardle.example.com")

// namespace makes a namespace, with a quota if it is not zero.
func (g *guarded) namespace(t *testing.T, name string, quota int64) {
	t.Helper()
	typed, _ := g.core.Clients(t)
	if _, err := typed.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if quota == 0 {
		return
	}
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "flunders"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{flunderQuota: *resource.NewQuantity(quota, resource.DecimalSI)}}}
	if _, err := typed.CoreV1().ResourceQuotas(name).Create(t.Context(), q, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// A quota holds once each gateway has heard of it, and shows it in the status.
	wait.Poll(t, time.Minute, "the quota is held", func(ctx context.Context) error {
		for _, gateway := range g.gateways {
			// Nothing is created: the namespace in the object is another one.
			if err := gateway.Alive(); err != nil {
				return err
			}
		}
		got, err := typed.CoreV1().ResourceQuotas(name).Get(ctx, "flunders", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if _, ok := got.Status.Used[flunderQuota]; !ok {
			return fmt.Errorf("its status is %v", got.Status)
		}
		return nil
	})
}

// create creates a flunder through one of the gateways.
func (g *guarded) create(ctx context.Context, t *testing.T, gateway int, namespace, name string) error {
	_, dyn := g.gateways[gateway].Clients(t)
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "wardle.example.com/v1alpha1", "kind": "Flunder",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"reference": "other", "referenceType": "Flunder"}}}
	_, err := dyn.Resource(flunders).Namespace(namespace).Create(ctx, o, metav1.CreateOptions{})
	return err
}

// count is how many flunders the server itself has.
func (g *guarded) count(ctx context.Context, t *testing.T, namespace string) (int, error) {
	_, dyn := g.sample.Clients(t)
	list, err := dyn.Resource(flunders).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	return len(list.Items), nil
}

const creators = 50

// storm has fifty creators, over both gateways, create and delete until ctx
// ends; it returns the errors that are neither a quota's nor a dead gateway's.
func (g *guarded) storm(ctx context.Context, t *testing.T, namespace, prefix string) (created int64, odd []error) {
	var made atomic.Int64
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range creators {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			_, dyn := g.gateways[i%2].Clients(t)
			for n := 0; ctx.Err() == nil; n++ {
				name := fmt.Sprintf("%s-%d-%d", prefix, i, n)
				err := g.create(ctx, t, i%2, namespace, name)
				switch {
				case err == nil:
					made.Add(1)
					if random.IntN(2) == 0 {
						_ = dyn.Resource(flunders).Namespace(namespace).Delete(ctx, name, metav1.DeleteOptions{})
					}
				case ctx.Err() != nil:
				case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"):
				default:
					mu.Lock()
					odd = append(odd, err)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return made.Load(), odd
}

// TestQuota: fifty creators over two gateways, one of which is killed: never
// more objects than the quota allows, and all that it allows in the end.
func TestQuota(t *testing.T) {
	const hard = 20
	g := startGuarded(t)
	g.namespace(t, "team", hard)

	watching, stop := context.WithCancel(t.Context())
	defer stop()
	most, lists := atomic.Int64{}, atomic.Int64{}
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for watching.Err() == nil {
			n, err := g.count(watching, t, "team")
			if err != nil {
				continue
			}
			lists.Add(1)
			most.Store(max(most.Load(), int64(n)))
		}
	})
	run := func(prefix string, during func()) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			made, odd := g.storm(ctx, t, "team", prefix)
			t.Logf("%s: %d creates were let in", prefix, made)
			if made == 0 {
				t.Errorf("%s: nothing could be created", prefix)
			}
			if len(odd) > 0 {
				t.Logf("%s: %d other errors, the first: %v", prefix, len(odd), odd[0])
			}
		})
		during()
		cancel()
		wg.Wait()
	}
	full := func() {
		// Only what was let in is counted; then the quota is full again.
		wait.Poll(t, 5*time.Minute, "all that the quota allows can be created", func(ctx context.Context) error {
			for n := 0; ; n++ {
				if err := g.create(ctx, t, n%2, "team", fmt.Sprintf("fill-%d", rand.Uint32())); err != nil {
					break
				}
			}
			n, err := g.count(ctx, t, "team")
			if err == nil && n != hard {
				err = fmt.Errorf("there are %d of %d, and no more can be created", n, hard)
			}
			return err
		})
	}

	pause := func(d time.Duration) func() {
		return func() { // how long creators create, not what anything waits for
			select {
			case <-time.After(d):
			case <-t.Context().Done():
			}
		}
	}
	run("both", pause(10*time.Second))
	full()
	g.gateways[0].Kubectl(t, "", "delete", "flunders.v1alpha1.wardle.example.com", "-n", "team", "--all")
	run("one-killed", func() {
		pause(3 * time.Second)()
		g.gateways[1].Kill()
		pause(3 * time.Second)()
		g.gateways[1].Restart(t)
		g.gateways[1].Await(t)
		pause(3 * time.Second)()
	})
	full()
	stop()
	watcher.Wait()
	t.Logf("the server was counted %d times and never held more than %d of %d", lists.Load(), most.Load(), hard)
	if most.Load() > hard || lists.Load() == 0 {
		t.Errorf("the server held %d flunders; the quota allows %d", most.Load(), hard)
	}
}

// TestNamespaceGuard: what no namespace, no right and a dead server mean.
func TestNamespaceGuard(t *testing.T) {
	g := startGuarded(t)
	ctx := t.Context()
	g.namespace(t, "held", 0)
	g.namespace(t, "free", 0)
	if err := g.create(ctx, t, 0, "nowhere", "any"); !apierrors.IsNotFound(err) {
		t.Errorf("create in a namespace that does not exist: %v; want 404", err)
	}
	if err := g.create(ctx, t, 0, "held", "any"); err != nil {
		t.Fatal(err)
	}

	typed, _ := g.core.Clients(t)
	g.sample.Kill()
	for _, name := range []string{"held", "free"} {
		if err := typed.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	wait.Poll(t, 2*time.Minute, "the namespace of which the dead server holds nothing is gone", func(ctx context.Context) error {
		_, err := typed.CoreV1().Namespaces().Get(ctx, "free", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("it is still there"), err)
	})
	held, err := typed.CoreV1().Namespaces().Get(ctx, "held", metav1.GetOptions{})
	if err != nil || held.DeletionTimestamp.IsZero() || !slices.Contains(held.Spec.Finalizers, "aggregation.xbernetes.io/sample") {
		shown, _ := json.Marshal(held)
		t.Errorf("the namespace in which the dead server holds something: %s, %v; want it to wait for that server", shown, err)
	}

	g.sample.Restart(t)
	g.sample.Await(t)
	took := wait.Poll(t, 3*time.Minute, "the namespace is emptied and gone", func(ctx context.Context) error {
		_, err := typed.CoreV1().Namespaces().Get(ctx, "held", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("it is still there"), err)
	})
	t.Logf("the namespace was gone %v after the server was back", took.Round(time.Millisecond))
	if n, err := g.count(ctx, t, "held"); err != nil || n != 0 {
		t.Errorf("the server has %d objects of the namespace, %v", n, err)
	}
}

// TestRights: somebody may create only where the core server says so, though
// the server behind lets the gateway's own user do anything.
func TestRights(t *testing.T) {
	g := startGuarded(t)
	g.namespace(t, "theirs", 0)
	g.namespace(t, "others", 0)
	g.core.Kubectl(t, "", "create", "serviceaccount", "somebody", "-n", "theirs")
	g.core.Kubectl(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: flunders, namespace: theirs}
rules: [{apiGroups: [wardle.example.com], resources: [flunders], verbs: [create, get, list]}]
`, "apply", "-f", "-")
	g.core.Kubectl(t, "", "create", "rolebinding", "flunders", "-n", "theirs", "--role=flunders", "--serviceaccount=theirs:somebody")
	token := strings.TrimSpace(g.core.Kubectl(t, "", "create", "token", "somebody", "-n", "theirs", "--duration=1h"))
	file := filepath.Join(g.dir, "somebody.kubeconfig")
	world.WriteKubeconfig(t, file, g.gateways[0].URL, g.gateways[0].CAFile, token)
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	somebody := &guarded{gateways: [2]*world.Server{{Config: config}}}
	if err := somebody.create(t.Context(), t, 0, "theirs", "mine"); err != nil {
		t.Errorf("create where it is allowed: %v", err)
	}
	if err := somebody.create(t.Context(), t, 0, "others", "mine"); !apierrors.IsForbidden(err) {
		t.Errorf("create where it is not allowed: %v; want 403", err)
	}
	if n, err := g.count(t.Context(), t, "others"); err != nil || n != 0 {
		t.Errorf("the server has %d objects in the other namespace, %v", n, err)
	}
}
