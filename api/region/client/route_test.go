package client

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/internal/region/regiontest"
)

// fakes are three active regions, of which ap has the service cluster tokyo.
func fakes(t *testing.T) (map[string]*regiontest.Fake, *Regions) {
	all := regiontest.Fakes(t)
	config := Config{Register: "eu", Regions: map[string]*rest.Config{}}
	for name, f := range all {
		config.Regions[name] = f.Reach()
	}
	open, err := Open(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	return all, open
}

func TestAKnownRouteAsksNoRegion(t *testing.T) {
	all, open := fakes(t)
	known := open.As(regiontest.Known, nil)
	leads(t, known, "ap")
	for range 10 {
		leads(t, open.As(regiontest.Known, nil), "ap")
	}
	if n := all["ap"].Took() + all["eu"].Took() + all["us"].Took(); n != 2 {
		t.Errorf("%d requests were made, want 2, both of the first question", n)
	}
}

func TestARouteIsToldToNoOtherCaller(t *testing.T) {
	_, open := fakes(t)
	leads(t, open.As(regiontest.Known, nil), "ap")
	for _, token := range []string{"other", ""} {
		if home, err := open.As(token, nil).Route(t.Context(), ServiceCluster, "tokyo"); !apierrors.IsForbidden(err) || home != "" {
			t.Errorf("%q is told %q, %v; want the region's 403", token, home, err)
		}
	}
}

func TestAWrongRouteHealsItself(t *testing.T) {
	all, open := fakes(t)
	known := open.As(regiontest.Known, nil)
	leads(t, known, "ap")
	for _, f := range all {
		f.Move("tokyo", "us")
		f.Took()
	}
	// What is learned less than a second ago is not asked for again, and so the table is
	// told that the answer is older.
	known.routes.Forget(known.routeKey(ServiceCluster, "tokyo"))
	leads(t, known, "us")
	for range 10 {
		known.Doubt(ServiceCluster, "tokyo", "us")
		leads(t, known, "us")
	}
	if n := all["ap"].Took() + all["eu"].Took() + all["us"].Took(); n != 2 {
		t.Errorf("doubts led to %d requests, want 2", n)
	}
}

func TestARegionThatIsAwayIsPassedOver(t *testing.T) {
	all, open := fakes(t)
	known := open.As(regiontest.Known, nil)
	all["ap"].Close()
	leads(t, known, "ap") // its API is away, and still the way to tokyo
	known.Doubt(ServiceCluster, "tokyo", "ap")
	all["eu"].Leave()
	known.routes.Forget(known.routeKey(ServiceCluster, "tokyo"))
	leads(t, known, "ap") // us says so
	all["eu"].Close()
	all["us"].Close()
	known.routes.Forget(known.routeKey(ServiceCluster, "tokyo"))
	if _, err := known.Route(t.Context(), ServiceCluster, "tokyo"); !errors.Is(err, ErrAway) {
		t.Errorf("without any region, the error is %v", err)
	}
}

func TestANameThatIsNowhereHasNoRoute(t *testing.T) {
	all, open := fakes(t)
	known := open.As(regiontest.Known, nil)
	for _, name := range []string{"osaka", "../tokyo", "", strings.Repeat("a", 64)} {
		if home, err := known.Route(t.Context(), ServiceCluster, name); err == nil {
			t.Errorf("%q leads to %q", name, home)
		}
	}
	if n := all["ap"].Took(); n != 2 {
		t.Errorf("%d requests were made, want 2: for the one name that can be", n)
	}
}

func leads(t *testing.T, r *Regions, want string) {
	t.Helper()
	if home, err := r.Route(t.Context(), ServiceCluster, "tokyo"); err != nil || home != want {
		t.Errorf("tokyo leads to %q, %v; want %q", home, err, want)
	}
}
