package upkeep

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/canonical"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/core"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/ledger"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/namespaces"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/policytest"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/servers"
)

const widgets = "widgets.a"

// onlyA has one server, A, which has group a.
type onlyA struct{}

func (onlyA) For(group string) (servers.Server, bool) {
	return servers.Server{Name: "A", Guard: v1alpha1.Guard{Quota: true}}, group == "a"
}
func (onlyA) Claims(string, string) bool { return false }
func (onlyA) Names() []string            { return []string{"A"} }
func (onlyA) Kind(string, schema.GroupVersionResource) (canonical.Kind, error) {
	return canonical.Kind{}, errAway
}
func (onlyA) Client(string) (*rest.Config, *http.Client, error) { return nil, nil, errAway }

// pendingAt is an Upkeep over a ledger with one pending create, at a server, of a
// resource whose group A has.
func pendingAt(t *testing.T, server string) (*Upkeep, *policytest.Memory) {
	m := &policytest.Memory{Hard: 3, Objects: 1, Namespace: namespaces.Namespace{UID: "uid"}}
	l := ledger.New("b")
	l.Counts[widgets] = ledger.Count{Version: "v1", Counted: true, Used: 1, Exact: true}
	l.Pending["f"] = ledger.Create{Server: server, Resource: widgets, Version: "v1", Seconds: 10}
	m.Put(policytest.Key, l)
	ledgers, keeper, counter := m.Rooms()
	quotas := core.NewQuotas(nil, func(string) ([]*corev1.ResourceQuota, bool) { return nil, true })
	return New(Config{Servers: onlyA{}, Namespaces: keeper, Counter: counter, Ledgers: ledgers, Quotas: quotas, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}), m
}

// TestAPendingCreateOutlivesItsServer: a create to a server that is then removed
// counts in the quota no longer than any other.
func TestAPendingCreateOutlivesItsServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, m := pendingAt(t, "removed")
		for _, want := range []int{1, 0} {
			if err := u.Counter.Expire(t.Context(), policytest.Key, "A", func(f ledger.Create) bool { return u.expires(f) == "A" }); err != nil {
				t.Fatal(err)
			}
			if l := m.Ledger(t, policytest.Key); len(l.Pending) != want || l.Counts[widgets].Used != 1 {
				t.Errorf("%d creates are pending, want %d: %+v", len(l.Pending), want, l.Counts)
			}
			time.Sleep(10 * time.Second)
		}
	})
}

// TestAnExpiredCreateIsLookedAfter: the server at whose look it ends is looked at.
func TestAnExpiredCreateIsLookedAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, m := pendingAt(t, "removed")
		u.lanes.start = func(workqueue.TypedRateLimitingInterface[task]) {}
		defer u.lanes.prune(func(string) bool { return false })
		l := m.Ledger(t, policytest.Key)
		for _, want := range []bool{false, true} {
			u.wake(policytest.Key, l, namespaces.Namespace{Terminating: true})
			if looked := u.lanes.queues["A"] != nil; looked != want {
				t.Errorf("A is looked at: %t", looked)
			}
			time.Sleep(10 * time.Second)
		}
	})
}

// TestALedgerGoesWithItsNamespace: once no create is pending, or only expired ones
// to a server that is removed.
func TestALedgerGoesWithItsNamespace(t *testing.T) {
	for server, goes := range map[string]bool{"removed": true, "A": false} {
		synctest.Test(t, func(t *testing.T) {
			u, m := pendingAt(t, server)
			m.Namespace.UID = "another"
			var gone []bool
			for range 2 {
				done, err := u.Namespaces.Discard(t.Context(), policytest.Key, u.registered)
				if err != nil {
					t.Fatal(err)
				}
				gone = append(gone, done)
				time.Sleep(10 * time.Second)
			}
			if left := m.Ledger(t, policytest.Key); !slices.Equal(gone, []bool{false, goes}) || (left == nil) != goes {
				t.Errorf("a create to %s: gone %v, ledger %v", server, gone, left)
			}
		})
	}
}

// away is a core server, and a server, that do not answer.
type away struct{ *policytest.Memory }

func (away) Get(context.Context, string) (namespaces.Namespace, error) {
	return namespaces.Namespace{}, errAway
}

func (away) Holds(context.Context, string, string, map[string]string) (bool, error) {
	return false, errAway
}

var errAway = errors.New("connection refused")

// TestWhatWasDueStaysSo: an error that passes does not put a recount off until
// the next is due.
func TestWhatWasDueStaysSo(t *testing.T) {
	for name, fail := range map[string]func(*Upkeep, *policytest.Memory){
		"the namespace cannot be read":   func(u *Upkeep, m *policytest.Memory) { u.Namespaces.Core = away{m} },
		"the ledger cannot be read":      func(_ *Upkeep, m *policytest.Memory) { m.Down = true },
		"the server cannot be looked at": func(u *Upkeep, m *policytest.Memory) { u.Namespaces.Inventory = away{m} },
	} {
		u, m := pendingAt(t, "A")
		m.Namespace.Finalizers = []string{namespaces.Finalizer("A")}
		l := ledger.New("b")
		l.Held["A"] = ledger.Held
		m.Put(policytest.Key, l)
		fail(u, m)
		due := task{at: policytest.Key, lane: "A"}
		u.due.set(due)
		if _, err := u.lookAtServer(t.Context(), due); err == nil || !u.due.tasks[due] {
			t.Errorf("%s: %v, and it is due: %t", name, err, u.due.tasks[due])
		}
		m.Down, u.Namespaces.Core, u.Namespaces.Inventory = false, m, m
		if _, err := u.lookAtServer(t.Context(), due); err != nil || u.due.tasks[due] {
			t.Errorf("%s no more: %v, and it is due: %t", name, err, u.due.tasks[due])
		}
	}
}
