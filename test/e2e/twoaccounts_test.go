package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// A world is two accounts, really apart: a server each, in a network namespace
// each, and the object store in a third.
type world struct {
	net            isolation
	store          *store
	vendor, tenant *server
}

// newWorld starts the store and both servers, the vendor's with these flags,
// and shows that they are apart.
func newWorld(t *testing.T, vendorFlags ...string) *world {
	t.Helper()
	w := &world{net: isolate(t)}
	w.store = startStore(t, w.net.store)
	w.vendor = newServer(t, w.net.vendor, "vendor", w.store.journal("plane"), vendorAccount.Env(), vendorFlags...)
	w.tenant = newServer(t, w.net.tenant, "tenant", w.store.journal("plane"), tenantAccount.Env())
	w.vendor.up(t)
	w.tenant.up(t)
	w.net.prove(t, w.store.listen, w.vendor.listen, w.tenant.listen)
	if t.Failed() {
		t.FailNow()
	}
	return w
}

// nextEvent waits for an event of a watch that satisfies want.
func nextEvent(t testing.TB, events <-chan watch.Event, what string, want func(watch.Event) bool) *unstructured.Unstructured {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	for {
		select {
		case e, open := <-events:
			if !open {
				t.Fatalf("the watch ended before %s", what)
			}
			obj, ok := e.Object.(*unstructured.Unstructured)
			if !ok || e.Type == watch.Error {
				t.Fatalf("the watch says %s before %s: %v", e.Type, what, e.Object)
			}
			if want(e) {
				return obj
			}
		case <-ctx.Done():
			t.Fatalf("the watch does not show %s", what)
		}
	}
}

func TestTwoAccounts(t *testing.T) {
	w := newWorld(t)
	w.tenant.kubectl(t, widgetCRD, "apply", "-f", "-")
	w.tenant.serves(t, widgets)
	w.vendor.serves(t, widgets)
	_, atVendor := w.vendor.clients(t)
	_, atTenant := w.tenant.clients(t)
	vendors, tenants := atVendor.Resource(widgets).Namespace("default"), atTenant.Resource(widgets).Namespace("default")

	t.Run("an object reaches the other's watch and its status comes back", func(t *testing.T) {
		watching, err := vendors.Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer watching.Stop()
		made, err := tenants.Create(t.Context(), newWidget("first", 7), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		seen := nextEvent(t, watching.ResultChan(), "the tenant's widget", func(e watch.Event) bool {
			return e.Type == watch.Added && e.Object.(*unstructured.Unstructured).GetName() == "first"
		})
		if seen.GetUID() != made.GetUID() || seen.GetResourceVersion() != made.GetResourceVersion() || field(seen, "spec", "size") != int64(7) {
			t.Errorf("the vendor sees %v; want %v", seen, made)
		}
		setField(seen, "Made", "status", "phase")
		if _, err := vendors.UpdateStatus(t.Context(), seen, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		awaitObject(t, tenants, "first", "the vendor's status at the tenant", func(obj *unstructured.Unstructured) bool {
			return field(obj, "status", "phase") == "Made" && field(obj, "spec", "size") == int64(7)
		})
	})

	t.Run("of two writers one gets a conflict", func(t *testing.T) {
		made, err := tenants.Create(t.Context(), newWidget("raced", 0), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		const rounds = 50
		wins := map[string]int{}
		for round := range rounds {
			type outcome struct {
				who string
				obj *unstructured.Unstructured
				err error
			}
			outcomes := make(chan outcome, 2)
			start := make(chan struct{})
			for who, side := range map[string]interface {
				Update(context.Context, *unstructured.Unstructured, metav1.UpdateOptions, ...string) (*unstructured.Unstructured, error)
			}{"vendor": vendors, "tenant": tenants} {
				mine := made.DeepCopy()
				setField(mine, who, "spec", "note")
				setField(mine, int64(round), "spec", "size")
				go func() {
					<-start
					obj, err := side.Update(t.Context(), mine, metav1.UpdateOptions{})
					outcomes <- outcome{who, obj, err}
				}()
			}
			close(start)
			var won, lost []outcome
			for range 2 {
				if o := <-outcomes; o.err == nil {
					won = append(won, o)
				} else {
					lost = append(lost, o)
				}
			}
			if len(won) != 1 || !apierrors.IsConflict(lost[0].err) {
				t.Fatalf("round %d: %d writers won, the others got %v; want one winner and one conflict", round, len(won), lost)
			}
			wins[won[0].who]++
			made = won[0].obj
			for _, side := range []interface {
				Get(context.Context, string, metav1.GetOptions, ...string) (*unstructured.Unstructured, error)
			}{vendors, tenants} {
				got, err := side.Get(t.Context(), "raced", metav1.GetOptions{})
				if err != nil || got.GetResourceVersion() != made.GetResourceVersion() || field(got, "spec", "note") != won[0].who {
					t.Fatalf("round %d: after the race a side reads %v, %v; want the winner's, %v", round, got, err, made)
				}
			}
		}
		t.Logf("of %d rounds: %v", rounds, wins)
	})
}

// TestKillsApart kills each account's server, and the store, under load.
func TestKillsApart(t *testing.T) {
	w := newWorld(t, "--reads", "session")
	w.tenant.kubectl(t, widgetCRD, "apply", "-f", "-")
	both := []*server{w.vendor, w.tenant}
	for _, s := range both {
		s.serves(t, widgets)
	}
	for _, roles := range []struct{ victim, other *server }{{w.tenant, w.vendor}, {w.vendor, w.tenant}} {
		t.Run("the "+roles.other.name+" goes on without the "+roles.victim.name, func(t *testing.T) {
			dying, going := roles.victim.write(t, 2), roles.other.write(t, 2)
			dying.awaitWrites(t, 10)
			roles.victim.Kill()
			going.awaitWrites(t, 30)
			dying.rest()
			roles.victim.up(t)
			// The controllers go on too, wherever they run: one of them empties namespaces.
			roles.other.kubectl(t, "", "create", "namespace", "passing-"+roles.victim.name)
			roles.other.kubectl(t, "", "delete", "namespace", "passing-"+roles.victim.name, "--timeout=80s")
			going.awaitWrites(t, 10)
			going.rest()
			checkAll(t, both, dying, going)
		})
	}
	t.Run("both outlive the store", func(t *testing.T) { outliveStore(t, w) })
}

// outliveStore kills the store under load and starts it again.
func outliveStore(t *testing.T, w *world) {
	both := []*server{w.vendor, w.tenant}
	crews := []*crew{w.vendor.write(t, 2), w.tenant.write(t, 2)}
	for _, c := range crews {
		c.awaitWrites(t, 10)
	}
	w.store.Kill()
	for i, s := range both {
		// A write that was sent when the store was dead for sure.
		_, err := s.once().Create(t.Context(), newWidget(fmt.Sprintf("during-%d", i), 0), metav1.CreateOptions{})
		if err == nil || !retryable(err) {
			t.Errorf("%s: a write without a store gets %v; want an error that can be retried", s.name, err)
		} else {
			t.Logf("%s: a write without a store gets: %v", s.name, err)
		}
	}
	before := crews[0].acknowledged() + crews[1].acknowledged()
	readWithoutStore(t, w)
	if now := crews[0].acknowledged() + crews[1].acknowledged(); now != before {
		t.Errorf("%d writes were acknowledged without a store", now-before)
	}
	w.store.up(t)
	for i, c := range crews {
		back := time.Now()
		c.awaitWrites(t, 10)
		t.Logf("%s: 10 writes are acknowledged %v after the store is back", both[i].name, time.Since(back).Round(time.Millisecond))
	}
	for _, c := range crews {
		c.rest()
	}
	checkAll(t, both, crews...)
	for _, s := range both {
		s.awaitReady(t)
	}
}

// readWithoutStore: reads in session mode go on, from what the server has.
// Linearizable ones, which cannot know what others wrote, fail.
func readWithoutStore(t *testing.T, w *world) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), requestTimeout)
	defer cancel()
	if list, err := w.vendor.once().List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) == 0 {
		t.Errorf("a list in session mode without a store gives %v", err)
	}
	if _, err := w.vendor.once().Get(ctx, "never-made", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a get in session mode without a store gives %v; want not found", err)
	}
	get, cancel := context.WithTimeout(t.Context(), requestTimeout)
	defer cancel()
	_, err := w.tenant.once().Get(get, "never-made", metav1.GetOptions{})
	if err == nil || !retryable(err) {
		t.Errorf("a linearizable get without a store gives %v; want an error that can be retried", err)
	}
	t.Logf("a linearizable get without a store gives: %v", err)
	list, cancel := context.WithTimeout(t.Context(), requestTimeout)
	defer cancel()
	if got, err := w.tenant.once().List(list, metav1.ListOptions{}); err == nil || !retryable(err) {
		t.Errorf("a linearizable list without a store gives %d widgets, %v; want an error that can be retried", len(got.Items), err)
	}
	for _, s := range []*server{w.vendor, w.tenant} {
		if err := s.Alive(); err != nil {
			t.Errorf("without a store, %v", err)
		}
	}
}
