package servicesync

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// arrivals notes when changes were sent, and when the slice elsewhere had them.
type arrivals struct {
	mu       sync.Mutex
	begun    map[string][]sentChange // by what they change, in their order
	changes  map[string]string       // by address: what it changes
	took     []time.Duration
	services map[string]bool // that have a slice
	slices   map[string]*discoveryv1.EndpointSlice
	held     map[string]int // in how many of those each address is
}

// sentChange is a change that has not arrived yet.
type sentChange struct {
	address string
	at      time.Time
}

func newArrivals() *arrivals {
	return &arrivals{begun: map[string][]sentChange{}, changes: map[string]string{}, services: map[string]bool{}, slices: map[string]*discoveryv1.EndpointSlice{}, held: map[string]int{}}
}

func (a *arrivals) sent(what string, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changes[changed(n)] = what
	a.begun[what] = append(a.begun[what], sentChange{changed(n), time.Now()})
}

// follow watches the slices of a cluster until the returned function is called.
// An API server ends the watch of who falls behind; it goes on where it was.
func (a *arrivals) follow(ctx context.Context, c kubernetes.Interface) (func(), error) {
	client := c.DiscoveryV1().EndpointSlices(namespace)
	now, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range now.Items {
		a.note(&now.Items[i], time.Now())
	}
	w, err := watchtools.NewRetryWatcherWithContext(ctx, now.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: client.Watch,
	})
	if err != nil {
		return nil, err
	}
	go func() {
		for event := range w.ResultChan() {
			s, ok := event.Object.(*discoveryv1.EndpointSlice)
			switch {
			case !ok:
				fmt.Fprintln(os.Stderr, "servicesync: slices are watched no more:", event.Object)
			case event.Type == watch.Deleted:
				a.mu.Lock()
				a.hold(s.Name, nil)
				a.mu.Unlock()
			default:
				a.note(s, time.Now())
			}
		}
	}()
	return w.Stop, nil
}

func (a *arrivals) note(s *discoveryv1.EndpointSlice, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.services[s.Labels[discoveryv1.LabelServiceName]] = true
	a.hold(s.Name, s)
	for _, e := range s.Endpoints {
		what, ok := a.changes[e.Addresses[0]]
		if !ok {
			continue
		}
		begun := a.begun[what]
		i := slices.IndexFunc(begun, func(c sentChange) bool { return c.address == e.Addresses[0] })
		for _, c := range begun[:i+1] { // those before it arrive with it: it has taken their place
			a.took = append(a.took, now.Sub(c.at))
			delete(a.changes, c.address)
		}
		a.begun[what] = begun[i+1:]
	}
}

func (a *arrivals) atLeast(services int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.services) < services {
		return fmt.Errorf("%d of %d", len(a.services), services)
	}
	return nil
}

// hold takes a slice as it is now for what it was; nil: it is gone. a.mu is held.
func (a *arrivals) hold(name string, s *discoveryv1.EndpointSlice) {
	if s != nil {
		for _, e := range s.Endpoints {
			a.held[e.Addresses[0]]++
		}
	}
	if old := a.slices[name]; old != nil {
		for _, e := range old.Endpoints {
			if a.held[e.Addresses[0]]--; a.held[e.Addresses[0]] == 0 {
				delete(a.held, e.Addresses[0])
			}
		}
	}
	if a.slices[name] = s; s == nil {
		delete(a.slices, name)
	}
}

// endpoints is nil if so many are in slices.
func (a *arrivals) endpoints(want int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.held) < want {
		return fmt.Errorf("%d of %d", len(a.held), want)
	}
	return nil
}

// forget drops what was measured so far.
func (a *arrivals) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.took = nil
}

// none is nil if nothing that was sent is under way.
func (a *arrivals) none() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.changes) > 0 {
		return fmt.Errorf("%d are under way", len(a.changes))
	}
	return nil
}

func (a *arrivals) durations() []time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]time.Duration(nil), a.took...)
}
