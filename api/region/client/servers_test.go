package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/region/regiontest"
	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// world is three real API servers, eu, us and ap, that are regions. The clock of ap is an hour
// ahead, and that of us an hour behind.
type world struct {
	*testing.T
	servers map[string]*regiontest.Server
	config  Config
	regions *Regions
	waits   func() // called when a client says that it waits
}

func newWorld(t *testing.T, central bool) *world {
	binary := regiontest.Binary(t)
	w := &world{t, map[string]*regiontest.Server{}, Config{Register: "eu", Regions: map[string]*rest.Config{}}, nil, func() {}}
	for _, name := range []string{"eu", "us", "ap", "centre"} {
		if name != "centre" || central {
			w.servers[name] = regiontest.Start(t, binary)
		}
	}
	for name, s := range w.servers {
		w.config.Regions[name] = s.Ready(t)
	}
	for name, off := range map[string]time.Duration{"ap": time.Hour, "us": -time.Hour} {
		w.config.Regions[name].Wrap(func(next http.RoundTripper) http.RoundTripper { return wrongClock{next, off} })
	}
	if central {
		w.config.Register, w.config.Central = "", w.config.Regions["centre"]
		delete(w.config.Regions, "centre")
	}
	var err error
	if w.regions, err = Open(w.config, w.progress); err != nil {
		t.Fatal(err)
	}
	return w
}

// wrongClock has a server's answers say the time that its clock shows if that is off.
type wrongClock struct {
	http.RoundTripper
	off time.Duration
}

var stamps = regexp.MustCompile(`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"`)

func (c wrongClock) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.RoundTripper.RoundTrip(r)
	if err != nil || r.URL.Query().Get("watch") != "" {
		return resp, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	body = stamps.ReplaceAllFunc(body, func(was []byte) []byte {
		var at time.Time
		if err := at.UnmarshalJSON(was); err != nil {
			return was
		}
		return []byte(`"` + at.Add(c.off).UTC().Format(time.RFC3339) + `"`)
	})
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		resp.Header.Set("Date", date.Add(c.off).Format(http.TimeFormat))
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	resp.Header.Del("Content-Length")
	return resp, nil
}

func (w *world) progress(step string) {
	w.Log(step)
	if strings.HasPrefix(step, "waiting") {
		w.waits()
	}
}

func (w *world) in(name string) *Region {
	r, err := w.regions.In(name)
	w.must(err)
	return r
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) fails(err, with error) {
	w.Helper()
	if !errors.Is(err, with) {
		w.Errorf("the error is %v, want %v", err, with)
	}
}

// lists checks that each of the regions lists these names.
func (w *world) lists(kind Kind, regions []string, names ...string) {
	w.Helper()
	for _, r := range regions {
		all, err := w.in(r).List(w.Context(), kind)
		if err != nil || len(all) != len(names) {
			w.Errorf("%s lists %v, %v; want %v", r, all, err, names)
			continue
		}
		for i, name := range names {
			if all[i].Name != name {
				w.Errorf("%s lists %v, want %v", r, all, names)
			}
		}
	}
}

var everywhere = []string{"ap", "eu", "us"}

func TestWithoutCentre(t *testing.T) {
	w := newWorld(t, false)
	if err := w.regions.Join(t.Context(), "us"); err == nil {
		t.Error("a region joined before the one that has the register")
	}
	w.joined()
	other := w.config
	other.Register = "us"
	misled, err := Open(other, nil)
	w.must(err)
	_, err = (&Region{misled, "us"}).Create(t.Context(), Account, "stray", Options{})
	w.fails(err, ErrLayout)
	w.owned()
	w.repeated()
	w.collected()
	w.away()
}

func TestWithCentre(t *testing.T) {
	w := newWorld(t, true)
	w.joined()
	w.owned()
	w.repeated()
	w.collected()
	w.away()
}

// joined has all regions join, which no region could be used before.
func (w *world) joined() {
	_, err := w.in("us").Create(w.Context(), Account, "early", Options{})
	w.fails(err, ErrNotMember)
	for _, name := range []string{"eu", "us", "ap", "us"} { // a second time changes nothing
		w.must(w.regions.Join(w.Context(), name))
	}
	members, err := w.regions.Members(w.Context())
	w.must(err)
	for _, m := range members {
		if m.State != "Active" || m.Problem != "" {
			w.Errorf("%+v is not as it should be", m)
		}
	}
}

// owned creates an account, a service cluster, and an assignment from two regions at once,
// which has one owner, and keeps the others from being deleted.
func (w *world) owned() {
	ctx := w.Context()
	tenant := Spec{Account: &v1alpha1.AccountSpec{Roles: []v1alpha1.AccountRole{v1alpha1.Tenant}}}
	_, err := w.in("eu").Create(ctx, Account, "team-a", Options{Spec: tenant})
	w.must(err)
	for _, r := range everywhere {
		got, err := w.in(r).Get(ctx, Account, "team-a")
		if diff := cmp.Diff(tenant, got.Spec); diff != "" || err != nil {
			w.Errorf("in %s the spec differs: %v, %s", r, err, diff)
		}
	}
	_, err = w.in("ap").Create(ctx, ServiceCluster, "tokyo", Options{})
	w.must(err)
	_, err = w.in("us").Create(ctx, Account, "team-a", Options{})
	w.fails(err, ErrTaken)
	_, err = w.in("us").Create(ctx, Assignment, "tokyo/team-b", Options{})
	w.fails(err, ErrAbsent)

	var both sync.WaitGroup
	errs := make([]error, 2)
	for i, region := range []string{"eu", "us"} {
		both.Go(func() { _, errs[i] = w.in(region).Create(ctx, Assignment, "tokyo/team-a", Options{}) })
	}
	both.Wait()
	if won := errs[0] == nil; won == (errs[1] == nil) {
		w.Errorf("two creates at once: %v and %v, want one to succeed", errs[0], errs[1])
	}
	w.lists(Assignment, everywhere, "tokyo/team-a")
	_, err = w.in("us").Delete(ctx, Account, "team-a", Options{})
	w.fails(err, ErrInUse)
	_, err = w.in("us").Delete(ctx, ServiceCluster, "tokyo", Options{DryRun: true})
	w.fails(err, ErrInUse)
	home, err := w.in("eu").Route(ctx, ServiceCluster, "tokyo")
	if err != nil || home != "ap" {
		w.Errorf("tokyo is in %s, %v; want ap", home, err)
	}
	gone, err := w.in("us").Delete(ctx, Assignment, "tokyo/team-a", Options{})
	if err != nil || gone.Region == "" {
		w.Errorf("the delete returns %+v, %v", gone, err)
	}
	w.lists(Assignment, everywhere)
	_, err = w.in("us").Delete(ctx, Assignment, "tokyo/team-a", Options{})
	w.fails(err, ErrAbsent)
}

// repeated asks again for operations that were carried out, once what they needed is not so any
// more: each answers as it did before, and nothing is changed.
func (w *world) repeated() {
	ctx, us := w.Context(), w.in("us")
	create := func(kind Kind, name, id string) error {
		_, err := us.Create(ctx, kind, name, Options{Operation: id})
		return err
	}
	remove := func(kind Kind, name, id string) error {
		_, err := us.Delete(ctx, kind, name, Options{Operation: id})
		return err
	}
	first, err := us.NewOperation(ctx)
	w.must(err)
	second, err := us.NewOperation(ctx)
	w.must(err)
	w.must(create(Account, "again", ""))
	w.must(create(Assignment, "tokyo/again", first))
	w.must(remove(Assignment, "tokyo/again", ""))
	w.must(remove(Account, "again", second))
	w.must(create(Assignment, "tokyo/again", first))
	w.lists(Assignment, everywhere)
	w.must(create(Account, "again", ""))
	w.must(create(Assignment, "tokyo/again", ""))
	w.must(remove(Account, "again", second))
	w.lists(Assignment, everywhere, "tokyo/again")
	w.lists(Account, everywhere, "again", "team-a")
	w.must(remove(Assignment, "tokyo/again", ""))
	w.must(remove(Account, "again", ""))
}

// collected removes all records: names stay, and an operation of before is not carried out again.
func (w *world) collected() {
	ctx := w.Context()
	id, err := w.in("us").NewOperation(ctx)
	w.must(err)
	_, err = w.in("us").Create(ctx, Account, "once", Options{Operation: id})
	w.must(err)
	_, err = w.in("eu").Delete(ctx, Account, "once", Options{})
	w.must(err)
	w.must(w.regions.Collect(ctx))
	places := []stored.Place{"ap", "eu", "us"}
	if w.config.Central != nil {
		places = []stored.Place{stored.Central}
	}
	for _, place := range places {
		a := w.regions.places.Call(ctx)(stored.ListOf(place, stored.KindOperation))[0]
		if a.Outcome != stored.OK || len(a.Objects) != 0 {
			w.Errorf("in %q there are the records %v, %v", place, a.Objects, a.Err)
		}
	}
	_, err = w.in("us").Create(ctx, Account, "once", Options{Operation: id})
	w.fails(err, ErrExpired)
	w.lists(Account, everywhere, "team-a")
}

// away stops a region: a create that needs it does not end until it is back; then the region
// goes for good, is removed, and joins again.
func (w *world) away() {
	ctx := w.Context()
	eu := w.in("eu")
	id, err := eu.NewOperation(ctx)
	w.must(err)
	w.servers["ap"].Kill()
	short, cancel := context.WithCancel(ctx)
	w.waits = cancel
	_, err = eu.Create(short, Account, "team-b", Options{Operation: id})
	w.fails(err, ErrOpen)
	w.waits = func() {}
	status, err := w.regions.Status(ctx)
	if err != nil || len(status.Unfinished) != 1 || status.Unfinished[0].Operation != id || status.Unfinished[0].Since.IsZero() ||
		!strings.Contains(status.Unfinished[0].Next, "region ap must answer") {
		w.Errorf("while ap is away, the status is %+v, %v", status, err)
	}
	w.lists(Account, []string{"eu", "us"}, "team-a")
	home, err := w.in("ap").Route(ctx, Account, "team-a")
	if err != nil || home != "eu" {
		w.Errorf("team-a is in %s, %v; want eu", home, err)
	}

	w.servers["ap"].Run(w.T)
	for range 2 { // the second time, it was carried out already
		_, err = eu.Create(ctx, Account, "team-b", Options{Operation: id})
		w.must(err)
	}
	w.lists(Account, everywhere, "team-a", "team-b")
	if status, err = w.regions.Status(ctx); err != nil || len(status.Unfinished) != 0 {
		w.Errorf("after all is done, the status is %+v, %v", status, err)
	}

	w.servers["ap"].Kill()
	w.fails(w.regions.Remove(ctx, "ap", false), ErrAway)
	w.must(w.regions.Remove(ctx, "ap", true))
	_, err = w.in("us").Delete(ctx, Account, "team-b", Options{})
	w.must(err)
	_, err = w.in("us").Create(ctx, Account, "team-c", Options{})
	w.must(err)
	w.servers["ap"].Run(w.T)
	w.servers["ap"].Ready(w.T)
	_, err = w.in("ap").Create(ctx, Account, "team-d", Options{})
	if w.config.Central != nil {
		w.fails(err, ErrNotMember)
	} else {
		w.fails(err, ErrRemoved)
	}
	w.must(w.regions.Join(ctx, "ap"))
	w.lists(Account, everywhere, "team-a", "team-c")
}
