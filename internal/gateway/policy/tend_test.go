package policy

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
)

// flightTo is a Guard over a ledger with one flight, to a server, of a resource
// whose group A has.
func flightTo(server string) (*Guard, *memory, place) {
	p, m := place{"ns", "uid"}, &memory{hard: 3, listed: 1}
	l := newLedger("b")
	l.Counts[widgets] = count{Version: "v1", Counted: true, Used: 1, Exact: true}
	l.Flights["f"] = flight{Server: server, Resource: widgets, Version: "v1", Seconds: 10}
	m.ledgers = map[place][2]string{p: {l.encode(), "1"}}
	m.ns = namespace{UID: "uid"}
	g := &Guard{servers: oneServer{v1alpha1.Guard{Quota: true}}, due: map[task]bool{}}
	g.lanes = newLanes(g.tend, g.untended)
	g.clerk = newClerk(m, m, m, m)
	g.clerk.tender = g.tender
	return g, m, p
}

// TestAFlightOutlivesItsServer: a create under way to a server that is then
// removed takes its place in the quota no longer than any other.
func TestAFlightOutlivesItsServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, m, p := flightTo("removed")
		for _, want := range []int{1, 0} {
			if err := g.clerk.sweep(t.Context(), p, "A"); err != nil {
				t.Fatal(err)
			}
			if l := m.ledger(t); len(l.Flights) != want || l.Counts[widgets].Used != 1 {
				t.Errorf("%d flights, want %d: %+v", len(l.Flights), want, l.Counts)
			}
			time.Sleep(10 * time.Second)
		}
	})
}

// TestALapsedFlightIsLookedAfter: whoever tends it is told.
func TestALapsedFlightIsLookedAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, m, p := flightTo("removed")
		g.lanes.start = func(workqueue.TypedRateLimitingInterface[task]) {}
		defer g.lanes.prune(func(string) bool { return false })
		l := m.ledger(t)
		for _, want := range []bool{false, true} {
			g.wake(p, l, namespace{Terminating: true})
			if told := g.lanes.queues["A"] != nil; told != want {
				t.Errorf("A is told: %t", told)
			}
			time.Sleep(10 * time.Second)
		}
	})
}

// TestALedgerGoesWithItsNamespace: once what is under way is over, or has been
// for long and its server is removed.
func TestALedgerGoesWithItsNamespace(t *testing.T) {
	for server, goes := range map[string]bool{"removed": true, "A": false} {
		synctest.Test(t, func(t *testing.T) {
			g, m, p := flightTo(server)
			m.ns.UID = "another"
			var gone []bool
			for range 2 {
				done, err := g.clerk.discard(t.Context(), p)
				if err != nil {
					t.Fatal(err)
				}
				gone = append(gone, done)
				time.Sleep(10 * time.Second)
			}
			if !slices.Equal(gone, []bool{false, goes}) || (len(m.ledgers) == 0) != goes {
				t.Errorf("a flight to %s: gone %v, ledgers %v", server, gone, m.ledgers)
			}
		})
	}
}

// away is a core server, and a server, that do not answer.
type away struct{ *memory }

func (away) get(context.Context, string) (namespace, error) { return namespace{}, errAway }

func (away) holds(context.Context, string, string, map[string]string) (bool, error) {
	return false, errAway
}

var errAway = errors.New("connection refused")

// TestWhatWasDueStaysSo: an error that passes does not put a recount off until
// the next is due.
func TestWhatWasDueStaysSo(t *testing.T) {
	for name, fail := range map[string]func(*Guard, *memory){
		"the namespace cannot be read":   func(g *Guard, m *memory) { g.clerk.namespaces = away{m} },
		"the ledger cannot be read":      func(_ *Guard, m *memory) { m.down = true },
		"the server cannot be looked at": func(g *Guard, m *memory) { g.clerk.inventory = away{m} },
	} {
		g, m, p := flightTo("A")
		g.quotas = &coreQuotas{lister: func(string) ([]*corev1.ResourceQuota, bool) { return nil, true }}
		m.ns.Finalizers = []string{FinalizerFor("A")}
		l := newLedger("b")
		l.Held["A"] = held
		m.ledgers[p] = [2]string{l.encode(), "1"}
		fail(g, m)
		due := task{place: p, lane: "A"}
		g.due[due] = true
		if _, err := g.tendServer(t.Context(), due); err == nil || !g.due[due] {
			t.Errorf("%s: %v, and it is due: %t", name, err, g.due[due])
		}
		m.down, g.clerk.namespaces, g.clerk.inventory = false, m, m
		if _, err := g.tendServer(t.Context(), due); err != nil || g.due[due] {
			t.Errorf("%s no more: %v, and it is due: %t", name, err, g.due[due])
		}
	}
}
