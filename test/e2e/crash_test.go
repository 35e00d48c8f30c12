package e2e

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"
)

var (
	crashSeed  = flag.Uint64("crash.seed", 0, "seed of the moments at which servers are killed; 0: a new one, which is printed")
	crashKills = flag.Int("crash.kills", 20, "how many times a server is killed")
)

// moments are the random delays of one test.
func moments(t *testing.T) *rand.Rand {
	t.Helper()
	seed := *crashSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("to repeat: -crash.seed=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// letPass lets a random time pass: the point of these tests is to hit any moment.
func letPass(random *rand.Rand, upTo time.Duration) {
	time.Sleep(time.Duration(random.Int64N(int64(upTo))))
}

// TestKillAtAnyMoment kills one server on a file journal again and again while
// clients write through the Kubernetes API.
func TestKillAtAnyMoment(t *testing.T) {
	random := moments(t)
	s := newServer(t, nil, "server", "", nil)
	s.up(t)
	s.kubectl(t, "", "create", "-f", widgetFile(t))
	s.serves(t, widgets)
	c := s.write(t, 4)
	c.awaitWrites(t, 20)
	for kill := range *crashKills {
		letPass(random, 300*time.Millisecond)
		s.Kill()
		s.start(t)
		if kill%4 == 3 { // while it starts
			letPass(random, 3*time.Second)
			s.Kill()
			s.start(t)
		}
		c.awaitWrites(t, 1+random.IntN(30))
	}
	c.rest()
	checkAll(t, []*server{s}, c)
	s.StopWell(t)
	s.up(t)
	checkAll(t, []*server{s}, c)
}

// TestKillOneOfTwo does the same to two servers on one S3 journal.
func TestKillOneOfTwo(t *testing.T) {
	random := moments(t)
	store := startStore(t, nil)
	servers := []*server{
		newServer(t, nil, "vendor", store.journal("plane"), vendorAccount.Env()),
		newServer(t, nil, "tenant", store.journal("plane"), tenantAccount.Env()),
	}
	for _, s := range servers {
		s.up(t)
	}
	servers[0].kubectl(t, "", "create", "-f", widgetFile(t))
	crews := make([]*crew, len(servers))
	for i, s := range servers {
		s.serves(t, widgets)
		crews[i] = s.write(t, 2)
	}
	for range *crashKills {
		i := random.IntN(len(servers))
		letPass(random, 300*time.Millisecond)
		servers[i].Kill()
		crews[1-i].awaitWrites(t, 1+random.IntN(10)) // the other goes on
		servers[i].start(t)
		if random.IntN(4) > 0 { // else it is killed again while it starts, perhaps
			crews[i].awaitWrites(t, 1+random.IntN(10))
		}
	}
	for i, s := range servers {
		s.awaitReady(t)
		crews[i].awaitWrites(t, 1)
		crews[i].rest()
	}
	checkAll(t, servers, crews...)
}

// TestKillTheStore kills the store under two servers, again and again.
func TestKillTheStore(t *testing.T) {
	random := moments(t)
	store := startStore(t, nil)
	servers := []*server{
		newServer(t, nil, "vendor", store.journal("plane"), vendorAccount.Env()),
		newServer(t, nil, "tenant", store.journal("plane"), tenantAccount.Env()),
	}
	for _, s := range servers {
		s.up(t)
	}
	servers[0].kubectl(t, "", "create", "-f", widgetFile(t))
	crews := make([]*crew, len(servers))
	for i, s := range servers {
		s.serves(t, widgets)
		crews[i] = s.write(t, 2)
	}
	for range *crashKills {
		for _, c := range crews {
			c.awaitWrites(t, 1+random.IntN(10))
		}
		store.Kill()
		letPass(random, 2*time.Second)
		store.up(t)
	}
	for _, c := range crews {
		c.awaitWrites(t, 1)
		c.rest()
	}
	checkAll(t, servers, crews...)
}
