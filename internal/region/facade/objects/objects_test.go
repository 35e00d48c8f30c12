package objects

import (
	"context"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/api/region/client"
	"github.com/xbernetes/xbernetes/internal/door"
	"github.com/xbernetes/xbernetes/internal/region/regiontest"
)

// place is the service clusters of three fake regions, and a caller whom they know.
type place struct {
	*testing.T
	*storage
	regions map[string]*regiontest.Fake
	ctx     context.Context
}

func newPlace(t *testing.T) *place {
	fakes := regiontest.Fakes(t)
	config := client.Config{Register: "eu", Regions: map[string]*rest.Config{}}
	for name, f := range fakes {
		config.Regions[name] = f.Reach()
	}
	regions, err := client.Open(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(WithCaller(t.Context(), Caller{regiontest.Known, "address"}))
	t.Cleanup(cancel)
	return &place{t, &storage{serviceClusters(), regions, bounds{door.NewShares(lists), door.NewShares(watches)}}, fakes, ctx}
}

// move changes the home of a service cluster; "" deletes it.
func (p *place) move(name, home string) {
	for _, r := range p.regions {
		r.Move(name, home)
	}
}

func (p *place) version() string {
	p.Helper()
	list, err := p.List(p.ctx, nil)
	if err != nil {
		p.Fatal(err)
	}
	return list.(metav1.ListInterface).GetResourceVersion()
}

// next returns the next event as TYPE NAME, and its resourceVersion.
func (p *place) next(w watch.Interface) (what, version string) {
	p.Helper()
	select {
	case e, open := <-w.ResultChan():
		if !open {
			p.Fatal("the watch has ended")
		}
		o := e.Object.(object)
		return fmt.Sprint(e.Type, " ", o.GetName()), o.GetResourceVersion()
	case <-time.After(30 * time.Second):
		p.Fatal("there is no event")
	}
	return "", ""
}

func TestAWatchTellsWhatChanges(t *testing.T) {
	p := newPlace(t)
	w, err := p.Watch(p.ctx, &internalversion.ListOptions{ResourceVersion: p.version()})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	p.move("osaka", "eu")
	if what, _ := p.next(w); what != "ADDED osaka" {
		t.Errorf("the event is %s", what)
	}
	p.move("tokyo", "us") // as another one of the name
	for _, want := range []string{"DELETED tokyo", "ADDED tokyo"} {
		if what, _ := p.next(w); what != want {
			t.Errorf("the event is %s, want %s", what, want)
		}
	}
	p.move("osaka", "")
	what, version := p.next(w)
	if what != "DELETED osaka" || version != p.version() {
		t.Errorf("the event is %s at %s, want DELETED osaka at the version of a list, %s", what, version, p.version())
	}
}

func TestAWatchGoesOnWhereAnotherEnded(t *testing.T) {
	p := newPlace(t)
	before := p.version()
	w, err := p.Watch(p.ctx, &internalversion.ListOptions{ResourceVersion: before})
	if err != nil {
		t.Fatal(err)
	}
	w.Stop()
	p.move("osaka", "eu")
	if _, err := p.Watch(p.ctx, &internalversion.ListOptions{ResourceVersion: before}); !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch from before a change is answered with %v, want 410", err)
	}
}

func TestAWatchListEndsItsFirstEventsWithABookmark(t *testing.T) {
	p := newPlace(t)
	yes := true
	w, err := p.Watch(p.ctx, &internalversion.ListOptions{SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if what, _ := p.next(w); what != "ADDED tokyo" {
		t.Errorf("the first event is %s", what)
	}
	e := <-w.ResultChan()
	o := e.Object.(object)
	if e.Type != watch.Bookmark || o.GetResourceVersion() != p.version() || o.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
		t.Errorf("then comes %v", e)
	}
}

func TestWatchesAreBoundedAndGiveTheirPlaceBack(t *testing.T) {
	p := newPlace(t)
	p.bounds.watches = door.NewShares(2) // of which one address gets one
	one, err := p.Watch(p.ctx, &internalversion.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Watch(p.ctx, &internalversion.ListOptions{}); !apierrors.IsTooManyRequests(err) {
		t.Errorf("one watch more than an address may have: %v", err)
	}
	one.Stop()
	for range one.ResultChan() {
	}
	for taken := 1; taken > 0; taken = p.bounds.watches.Taken() {
		time.Sleep(time.Millisecond)
	}
}

func TestWithoutACallerNothingIsRead(t *testing.T) {
	p := newPlace(t)
	if got, err := p.Get(t.Context(), "tokyo", nil); !apierrors.IsForbidden(err) {
		t.Errorf("a request of nobody gets %v, %v", got, err)
	}
	if got, err := p.List(t.Context(), nil); !apierrors.IsForbidden(err) {
		t.Errorf("a request of nobody gets %v, %v", got, err)
	}
}

func TestAnObjectIsTheSameFromEachRegion(t *testing.T) {
	p := newPlace(t)
	var first runtime.Object
	for _, name := range []string{"ap", "eu", "us"} {
		got, err := p.Get(p.ctx, "tokyo", nil)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = got
		}
		if fmt.Sprint(got) != fmt.Sprint(first) {
			t.Errorf("%v and %v differ", got, first)
		}
		p.regions[name].Close() // the next one answers
		if name == "eu" {
			break
		}
	}
}
