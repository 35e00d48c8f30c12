package notebook

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/xbernetes/xbernetes/internal/servicesync/model"
	"github.com/xbernetes/xbernetes/internal/servicesync/plan"
)

var web = types.NamespacedName{Namespace: "shop", Name: "web"}

// A write is waited for until the informers show it, or until its deadline; a Service whose
// write stays unseen is overdue then.
func TestWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, shown := New(), false
		n.Wrote(web, func() bool { return shown })
		if n.CaughtUp(web, time.Now()) || n.Overdue(time.Now()) != nil {
			t.Error("a write that no informer shows yet is not waited for, or is overdue at once")
		}
		late := time.Now().Add(Patience + time.Second)
		if got := n.Overdue(late); len(got) != 1 || got[0] != web {
			t.Errorf("after its deadline, overdue are %v", got)
		}
		if !n.CaughtUp(web, late) {
			t.Error("a write is waited for after its deadline")
		}
		n.Wrote(web, func() bool { return shown })
		shown = true
		if !n.CaughtUp(web, time.Now()) {
			t.Error("a write that is shown is waited for")
		}
	})
}

// Only the first of several changes counts, and each is taken once.
func TestTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, began := New(), time.Now()
		n.Changed(web, false)
		n.Received(web, "b")
		time.Sleep(time.Second)
		n.Changed(web, false)
		n.Received(web, "b")
		if got := n.Take(web); !got.Own.Equal(began) || !got.Peers["b"].Equal(began) {
			t.Errorf("took %+v; want what was noticed first, at %s", got, began)
		}
		if got := n.Take(web); !got.Own.IsZero() || got.Peers != nil {
			t.Errorf("took %+v a second time", got)
		}
	})
}

// The start is over once every Service of the complete first lists is settled.
func TestSettled(t *testing.T) {
	n := New()
	n.Changed(web, true)
	if n.Settle(types.NamespacedName{Name: "other"}) {
		t.Error("settled before the first lists are complete")
	}
	n.Loaded()
	if n.Settled() {
		t.Error("settled before a Service of the first lists is")
	}
	if !n.Settle(web) || !n.Settled() {
		t.Error("not settled though every Service is")
	}
}

// An event is fresh only if the decision before did not have it; facts come back once.
func TestDecided(t *testing.T) {
	n, e := New(), plan.Event{Reason: "Conflict"}
	if before, fresh := n.Decided(web, model.Facts{Conflict: "Conflict"}, []plan.Event{e}); before.Conflict != "" || len(fresh) != 1 {
		t.Errorf("first: %+v, %v", before, fresh)
	}
	if before, fresh := n.Decided(web, model.Facts{}, []plan.Event{e}); before.Conflict == "" || len(fresh) != 0 {
		t.Errorf("again: %+v, %v", before, fresh)
	}
	n.Decided(web, model.Facts{}, nil)
	n.Settle(web)
	if len(n.notes) != 0 {
		t.Error("notes that say nothing are kept")
	}
	if _, fresh := n.Decided(web, model.Facts{}, []plan.Event{e}); len(fresh) != 1 {
		t.Error("an event that had ended and is back is not said")
	}
}
