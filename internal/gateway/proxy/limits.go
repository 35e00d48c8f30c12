package proxy

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"

	"github.com/xbernetes/xbernetes/internal/door"
)

// Limits bound what callers and servers can make the gateway hold. A request
// beyond one is refused at once, with 429. Zero is the default; a negative
// number is no limit. Of the places of a server a user may hold as many as are
// free, so that no few users hold all; system:masters have places of their own, as
// many as there are besides, and health checks of the gateway take none.
type Limits struct {
	UserRequests   int // under way at once, of one user; 400
	UserStreams    int // watches and streams, of one user; 5,000
	ServerRequests int // under way at once, to one server; 1,000
	ServerStreams  int // watches and streams, to one server; 20,000

	UserRate  float64 // requests a second of one user; 0 is no limit
	UserBurst int     // how many may come at once under UserRate; twice the rate
}

func (l Limits) withDefaults() (Limits, error) {
	for _, d := range []struct {
		field *int
		value int
	}{{&l.UserRequests, 400}, {&l.UserStreams, 5000}, {&l.ServerRequests, 1000}, {&l.ServerStreams, 20_000}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if l.UserRate < 0 || l.UserBurst < 0 {
		return l, fmt.Errorf("limits: a rate of %g with a burst of %d: give none, or positive ones", l.UserRate, l.UserBurst)
	}
	if l.UserBurst == 0 {
		l.UserBurst = max(1, int(2*l.UserRate))
	}
	return l, nil
}

// load counts what is under way.
type load struct{ requests, streams int }

func (l *load) of(k kind) *int {
	if k == stream {
		return &l.streams
	}
	return &l.requests
}

// rememberedRates is how many users' rates are known at once; who has not
// called for the longest is forgotten, and may burst anew.
const rememberedRates = 10_000

// users hold what each caller has under way.
type users struct {
	limits Limits
	rates  *lru.Cache // of *rate.Limiter by caller; nil without a rate

	mu   sync.Mutex
	busy map[string]*load // those with something under way; guarded by mu
}

func newUsers(l Limits) *users {
	u := &users{limits: l, busy: map[string]*load{}}
	if l.UserRate > 0 {
		u.rates = lru.New(rememberedRates)
	}
	return u
}

// enter takes a place for a caller, if there is one, to be given back by leave.
func (u *users) enter(caller string, k kind, now time.Time) bool {
	if !u.take(caller, k) {
		return false
	}
	if u.rates == nil || u.rate(caller).AllowN(now, 1) {
		return true
	}
	u.leave(caller, k)
	return false
}

func (u *users) take(caller string, k kind) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	l := u.busy[caller]
	if l == nil {
		l = &load{}
		u.busy[caller] = l
	}
	limit := u.limits.UserRequests
	if k == stream {
		limit = u.limits.UserStreams
	}
	n := l.of(k)
	if limit >= 0 && *n >= limit {
		return false
	}
	*n++
	return true
}

func (u *users) leave(caller string, k kind) {
	u.mu.Lock()
	defer u.mu.Unlock()
	l := u.busy[caller]
	*l.of(k)--
	if *l == (load{}) {
		delete(u.busy, caller)
	}
}

func (u *users) rate(caller string) *rate.Limiter {
	if l, ok := u.rates.Get(caller); ok {
		return l.(*rate.Limiter)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if l, ok := u.rates.Get(caller); ok {
		return l.(*rate.Limiter)
	}
	l := rate.NewLimiter(rate.Limit(u.limits.UserRate), u.limits.UserBurst)
	u.rates.Add(caller, l)
	return l
}

// lane is what is under way to one server.
type lane struct {
	name string

	handlers  int            // of that name; guarded by the Proxy's mu
	endpoints map[string]int // how many of them have each; guarded by the Proxy's mu

	places map[place]*door.Shares // never changed

	mu   sync.Mutex
	gone bool // no metrics any more; guarded by mu
}

// place is what kind of room a request takes at a server.
type place struct {
	kind       kind
	privileged bool // of system:masters
}

func newLane(name string, limits Limits) *lane {
	l := &lane{name: name, endpoints: map[string]int{}, places: map[place]*door.Shares{}}
	for _, privileged := range []bool{false, true} {
		l.places[place{short, privileged}] = door.NewShares(limits.ServerRequests)
		l.places[place{stream, privileged}] = door.NewShares(limits.ServerStreams)
	}
	return l
}

func (p *Proxy) open(name string, endpoints []string) *lane {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lanes[name]
	if l == nil {
		l = newLane(name, p.opts.Limits)
		p.lanes[name] = l
		p.metrics.open(l)
	}
	l.handlers++
	for _, e := range endpoints {
		l.endpoints[e]++
	}
	return l
}

func (p *Proxy) close(l *lane, endpoints []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range endpoints {
		if l.endpoints[e]--; l.endpoints[e] == 0 {
			delete(l.endpoints, e)
			p.metrics.forgetEndpoint(l.name, e)
		}
	}
	if l.handlers--; l.handlers > 0 {
		return
	}
	delete(p.lanes, l.name)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = true
	p.metrics.forget(l.name)
}

// tell runs report while the server's name may be a label.
func (l *lane) tell(report func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.gone {
		report()
	}
}

func (l *lane) underWay(k kind) float64 {
	return float64(l.places[place{k, false}].Taken() + l.places[place{k, true}].Taken())
}
