package traffic

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"

	"github.com/xbernetes/xbernetes/internal/door"
)

// Limits bound how many requests callers and servers can have under way. A request
// beyond a limit is refused at once, with 429. Zero stands for the default, and a
// negative number for no limit. A server's limit is a number of places: a user may
// hold as many of them as are free, so that a few users cannot hold all.
// system:masters have as many places again for themselves. Health checks of the gateway take
// no place.
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

// load counts requests under way.
type load struct{ requests, streams int }

func (l *load) of(k kind) *int {
	if k == stream {
		return &l.streams
	}
	return &l.requests
}

// rememberedRates is how many users' rates are kept at once. Beyond that, the gateway forgets
// the user whose last call is the oldest; that user may burst again.
const rememberedRates = 10_000

// users counts each caller's requests under way.
type users struct {
	limits Limits
	rates  *lru.Cache // of *rate.Limiter by caller; nil without a rate

	mu   sync.Mutex
	busy map[string]*load // by caller, if the caller has a request under way; guarded by mu
}

func newUsers(l Limits) *users {
	u := &users{limits: l, busy: map[string]*load{}}
	if l.UserRate > 0 {
		u.rates = lru.New(rememberedRates)
	}
	return u
}

// enter counts a request of a caller, if the caller's limits allow one more. leave undoes
// that.
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

// target is one registered server, with the requests under way to it.
type target struct {
	name string

	handlers  int            // how many Limited have the name; guarded by the Control's mu
	endpoints map[string]int // how many of them have each endpoint; guarded by the Control's mu

	places map[class]*door.Shares // never changed

	mu   sync.Mutex
	gone bool // the server's metrics have ended; guarded by mu
}

// class says against which of a server's limits a request counts.
type class struct {
	kind       kind
	privileged bool // the caller is in system:masters
}

func newTarget(name string, limits Limits) *target {
	t := &target{name: name, endpoints: map[string]int{}, places: map[class]*door.Shares{}}
	for _, privileged := range []bool{false, true} {
		t.places[class{short, privileged}] = door.NewShares(limits.ServerRequests)
		t.places[class{stream, privileged}] = door.NewShares(limits.ServerStreams)
	}
	return t
}

// open returns the target of that name for one more Limited.
func (c *Control) open(name string, endpoints []string) *target {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.targets[name]
	if t == nil {
		t = newTarget(name, c.opts.Limits)
		c.targets[name] = t
		c.metrics.open(t)
	}
	t.handlers++
	for _, e := range endpoints {
		t.endpoints[e]++
	}
	return t
}

// close ends what open began; the last to close a name or an endpoint ends its metrics.
func (c *Control) close(t *target, endpoints []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range endpoints {
		if t.endpoints[e]--; t.endpoints[e] == 0 {
			delete(t.endpoints, e)
			c.metrics.forgetEndpoint(t.name, e)
		}
	}
	if t.handlers--; t.handlers > 0 {
		return
	}
	delete(c.targets, t.name)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone = true
	c.metrics.forget(t.name)
}

// tell runs report, which uses the server's name as a label, unless the metrics
// of that name have ended.
func (t *target) tell(report func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.gone {
		report()
	}
}

func (t *target) underWay(k kind) float64 {
	return float64(t.places[class{k, false}].Taken() + t.places[class{k, true}].Taken())
}
