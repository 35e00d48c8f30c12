package endpoints

import (
	"fmt"
	"net/url"
	"slices"
	"testing"
	"time"
)

var start = time.Unix(1e9, 0)

// three is a set of three endpoints that are set aside after two failures.
func three() *Set {
	var bases []*url.URL
	for _, host := range []string{"a", "b", "c"} {
		bases = append(bases, &url.URL{Scheme: "https", Host: host})
	}
	return New(bases, Ejection{After: 2, First: time.Minute, Most: 3 * time.Minute})
}

// TestClientsKeepToTheirEndpoint: a client gets the same endpoints in the same order each
// time, and clients differ.
func TestClientsKeepToTheirEndpoint(t *testing.T) {
	e, firsts := three(), map[*Endpoint]bool{}
	for i := range 50 {
		client := fmt.Sprint("client ", i)
		order := e.Order(client, start)
		if len(order) != 3 || !slices.Equal(order, e.Order(client, start)) {
			t.Fatalf("%s gets %d endpoints, or another order the second time", client, len(order))
		}
		firsts[order[0]] = true
	}
	if len(firsts) != 3 {
		t.Errorf("50 clients begin at %d of 3 endpoints", len(firsts))
	}
}

// TestOrderByHealth: what is set aside comes after what is well, what is unready after that,
// and what is down not at all.
func TestOrderByHealth(t *testing.T) {
	e := three()
	a, b, c := e.All[0], e.All[1], e.All[2]
	a.Checked(Unready, "not ready", time.Millisecond, start)
	for range 2 {
		e.Failed(b, "broken", start)
	}
	if order := e.Order("x", start); !slices.Equal(order, []*Endpoint{c, b, a}) {
		t.Errorf("the order is %v, want c, b, a", hosts(order))
	}
	c.Checked(Down, "refused", 0, start)
	if order := e.Order("x", start); !slices.Equal(order, []*Endpoint{b, a}) {
		t.Errorf("the order is %v, want b, a", hosts(order))
	}
	if h := e.Health(start); !h.Available || h.Checked || h.LastError != "not ready" || !h.Endpoints[1].Ejected {
		t.Errorf("the health is %+v", h)
	}
}

func hosts(order []*Endpoint) (names []string) {
	for _, ep := range order {
		names = append(names, ep.Base.Host)
	}
	return names
}

// TestEjectionsGrow: each ejection in a row lasts twice as long as the one before, up to a
// bound, and an answer ends the row.
func TestEjectionsGrow(t *testing.T) {
	e, now := three(), start
	a := e.All[0]
	ejected := func() time.Duration {
		t.Helper()
		if e.Failed(a, "broken", now) || !e.Failed(a, "broken", now) {
			t.Fatal("the endpoint is not set aside at its second failure")
		}
		before := now
		for e.Health(now).Endpoints[0].Ejected {
			now = now.Add(time.Minute)
		}
		return now.Sub(before)
	}
	for _, want := range []time.Duration{1, 2, 3, 3} {
		if got := ejected(); got != want*time.Minute {
			t.Errorf("the endpoint is set aside for %v, want %v", got, want*time.Minute)
		}
	}
	e.Succeeded(a)
	if got := ejected(); got != time.Minute {
		t.Errorf("after an answer the endpoint is set aside for %v, want a minute", got)
	}
}

// TestTheOnlyEndpointStays: where there is no other, failures set nothing aside.
func TestTheOnlyEndpointStays(t *testing.T) {
	e := New([]*url.URL{{Scheme: "https", Host: "a"}}, Ejection{After: 1, First: time.Minute, Most: time.Minute})
	if e.Failed(e.All[0], "broken", start) {
		t.Error("the only endpoint is set aside")
	}
}
