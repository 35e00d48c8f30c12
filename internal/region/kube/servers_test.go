package kube

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/internal/region/protocol"
	"github.com/xbernetes/xbernetes/internal/region/regiontest"
	"github.com/xbernetes/xbernetes/internal/region/stored"
)

var regions = []stored.Region{"r1", "r2", "r3"}

// TestRealServers: clients race for keys on three real API servers, without a central store
// and with one, while some of them give up at any call, a region joins, and a server is
// killed and started again. Each key has one owner, and is deleted and created anew.
func TestRealServers(t *testing.T) {
	binary := regiontest.Binary(t)
	servers := map[stored.Place]*regiontest.Server{}
	for _, place := range []stored.Place{stored.Central, "r1", "r2", "r3"} {
		servers[place] = regiontest.Start(t, binary)
	}
	configs := map[stored.Place]*rest.Config{}
	for place, s := range servers {
		configs[place] = s.Ready(t)
	}
	places, err := New(configs)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		layout protocol.Layout
	}{
		{"home", protocol.Layout{Register: "r1"}},
		{"central", protocol.Layout{Central: true, Register: stored.Central}},
	} {
		name := test.name
		t.Run("records "+name, func(t *testing.T) {
			c := &contest{layout: test.layout, places: places, key: stored.Key{Kind: "Account", Name: name}}
			c.until(t, func(p *protocol.Pass) error { _, err := p.Found("r1"); return err })
			c.until(t, func(p *protocol.Pass) error { _, err := p.Join("r2"); return err })
			first := c.race(t, name+"a", func() {
				c.until(t, func(p *protocol.Pass) error { _, err := p.Join("r3"); return err })
			})
			c.holds(t, first)
			c.delete(t, name+"d")
			c.holds(t, stored.OpID{})
			second := c.race(t, name+"b", func() {
				servers["r3"].Kill()
				servers["r3"].Run(t)
			})
			c.holds(t, second)
		})
	}
}

// contest is about one key.
type contest struct {
	layout protocol.Layout
	places *Places
	key    stored.Key
}

// until makes passes in the first region until one succeeds.
func (c *contest) until(t *testing.T, pass func(*protocol.Pass) error) {
	t.Helper()
	err := protocol.ErrAgain
	for n := 0; errors.Is(err, protocol.ErrAgain) || errors.As(err, new(*protocol.Waiting)); n++ {
		err = pass(protocol.Begin(c.layout, "r1", c.places.Call(t.Context()), n > 20))
		time.Sleep(rand.N(20 * time.Millisecond))
	}
	if err != nil {
		t.Error(err)
	}
}

// race has two clients in each region create the key, and returns who has got it.
func (c *contest) race(t *testing.T, name string, meanwhile func()) (winner stored.OpID) {
	t.Helper()
	var all sync.WaitGroup
	won := make(chan stored.OpID, 2*len(regions))
	for i := range 2 * len(regions) {
		op := stored.Operation{ID: stored.OpID{Unique: fmt.Sprintf("%s%d", name, i)}, Key: c.key, Home: regions[i/2]}
		all.Go(func() {
			if c.try(t, op, (*protocol.Pass).Create).State == stored.Done {
				won <- op.ID
			}
		})
	}
	meanwhile()
	all.Wait()
	close(won)
	for id := range won {
		if winner != (stored.OpID{}) {
			t.Fatalf("%v and %v both own %v", winner, id, c.key)
		}
		winner = id
	}
	if winner == (stored.OpID{}) {
		t.Fatalf("nobody has got %v", c.key)
	}
	return winner
}

func (c *contest) delete(t *testing.T, name string) {
	t.Helper()
	op := stored.Operation{ID: stored.OpID{Unique: name}, Key: c.key, Home: "r2"}
	if got := c.try(t, op, (*protocol.Pass).Delete); got.State != stored.Done {
		t.Fatalf("the delete is %s: %s", got.State, got.Reason)
	}
}

// try makes passes until the operation has ended. Some passes are given up at any time.
func (c *contest) try(t *testing.T, op stored.Operation, pass func(*protocol.Pass, stored.Operation) (stored.Operation, error)) stored.Operation {
	for n := 0; ; n++ {
		ctx, cancel := t.Context(), context.CancelFunc(func() {})
		if n < 3 {
			ctx, cancel = context.WithTimeout(ctx, rand.N(300*time.Millisecond))
		}
		got, err := pass(protocol.Begin(c.layout, op.Home, c.places.Call(ctx), n > 400), op)
		cancel()
		var waiting *protocol.Waiting
		switch {
		case err == nil:
			return got
		case t.Context().Err() != nil:
			t.Errorf("%v did not come to its end: %v", op.ID, err)
			return got
		case !errors.Is(err, protocol.ErrAgain) && !errors.As(err, &waiting):
			t.Error(err)
			return got
		}
		time.Sleep(rand.N(50 * time.Millisecond))
	}
}

// holds checks that each region has the owner's claim, or no claim that stands.
func (c *contest) holds(t *testing.T, owner stored.OpID) {
	t.Helper()
	for _, r := range regions {
		a := c.places.Call(t.Context())(stored.ReadOf(r.Place(), stored.KindClaim, c.key.ClaimName()))[0]
		claim, _ := a.Object.Body.(stored.Claim)
		if a.Outcome != stored.OK && a.Outcome != stored.NotFound {
			t.Errorf("%s: %s: %v", r, a.Outcome, a.Err)
		}
		if none := owner == (stored.OpID{}); none == claim.Owned() || !none && claim.Owner.Op != owner {
			t.Errorf("%s has %v, want the claim of %v", r, claim, owner)
		}
	}
}
