// The model has one thread: there is no race to find.

//go:build !race

package model_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/endpointslice"
	"github.com/xbernetes/xbernetes/internal/servicesync/model"
)

var (
	seeds = flag.Int("seeds", 40, "how many seeds the simulation runs")
	first = flag.Uint64("first", 1, "the first of them")
	seed  = flag.Uint64("seed", 0, "run this seed only, and print what happened")
)

// pinned are seeds that failed once, of this or an earlier simulation.
var pinned = []uint64{57, 70, 80, 100, 113, 120, 142, 173, 191, 10030, 10177, 11014, 20434, 30495, 40045, 40192, 51730, 2176, 302}

// TestSimulation runs clusters through crashes, cuts, stale and reordered
// views and people who change their minds, and checks at every write.
func TestSimulation(t *testing.T) {
	if *seed != 0 {
		w := explore(t, *seed, nil)
		t.Log("\n" + strings.Join(w.trace, "\n"))
		if w.failed != "" {
			t.Fatal(w.failed)
		}
		return
	}
	run := slices.Clone(pinned)
	for i := range *seeds {
		run = append(run, *first+uint64(i))
	}
	for _, s := range run {
		if w := explore(t, s, nil); w.failed != "" {
			t.Errorf("seed %d: %s\nreplay it with -run TestSimulation -seed %d", s, w.failed, s)
		}
	}
}

// explore runs one seed.
func explore(t *testing.T, seed uint64, break_ func(model.Config, model.Input, *model.Result)) *world {
	w := newWorld(t, seed, 2+int(seed%3))
	w.perSlice = []int{100, 8, 16}[seed/3%3] // slices hold all clusters, one, or two
	w.break_ = break_
	w.clusters[0].native(1 + w.rng.IntN(3))
	if w.rng.IntN(8) == 0 {
		w.clusters[1].native(2)
	}
	w.settle()
	for round := range 1 + w.rng.IntN(3) {
		w.chaos = true
		w.apart = (seed/9+uint64(round))%2 == 1
		w.moved = round * int(seed/18%2)
		for range 150 + w.rng.IntN(250) {
			if w.failed != "" {
				return w
			}
			w.stir()
		}
		if w.rng.IntN(2) == 0 {
			w.say("the leases run out")
			w.now = w.now.Add(lasts)
			w.settle()
			w.checkExpired()
		}
		w.say("the cuts heal")
		for _, c := range w.clusters {
			clear(c.cut)
		}
		w.settle()
		w.checkAtRest()
		w.checkRestart()
	}
	return w
}

// stir has one thing happen.
func (w *world) stir() {
	w.now = w.now.Add(time.Duration(w.rng.IntN(400)) * time.Millisecond)
	c := w.clusters[w.rng.IntN(len(w.clusters))]
	switch n := w.rng.IntN(100); {
	case n < 45:
		if c.up {
			c.look()
			c.reconcile()
		}
	case n < 60:
		c.kubernetes()
	case n < 75:
		if c.up {
			c.renew()
		}
	case n < 83:
		if !c.up {
			w.say("%s starts", c.id)
			c.start()
		}
	case n < 85:
		w.cutSomething(c)
	case n < 93:
		c.roll()
	case n < 95:
		c.mode([]string{"source", "receiver", "union", "singular", "", ""}[w.rng.IntN(6)])
	case n < 96 && c.api.service() != nil:
		if len(c.pods) == 0 {
			w.say("%s: pods are created", c.id)
			c.addPod("cart", false, true)
			c.addPod("cart", false, false)
		}
	case n < 97:
		c.recreate()
	default:
		for range 5 {
			c.look()
		}
	}
}

// recreate is somebody who deletes the Service, or creates it where it is gone.
func (c *cluster) recreate() {
	switch s := c.api.service(); {
	case s == nil:
		c.w.say("%s: somebody creates the Service", c.id)
		c.native(1)
	case c.w.rng.IntN(3) == 0:
		c.w.say("%s: somebody deletes the Service", c.id)
		c.original, c.pods = "", nil // with all that belongs to it
		c.w.deleted = true
		c.api.remove(s)
	}
}

// look shows the controller more of what happened, kind by kind.
func (c *cluster) look() {
	if !c.up {
		return
	}
	show := func(v *view) {
		for _, kind := range kinds {
			if c.w.rng.IntN(2) == 0 {
				behind := len(v.of.log) - v.at[kind]
				v.advance(kind, v.at[kind]+c.w.rng.IntN(behind+1))
			}
		}
	}
	defer c.hear()
	show(c.own)
	for _, p := range c.w.clusters {
		if p == c || c.cut[p.id] {
			continue
		}
		v := c.peers[p.id]
		if v.listed {
			show(v)
		} else if c.w.rng.IntN(2) == 0 {
			v.catchUp() // the first list
		} else {
			show(v) // of some kinds, and the rest is still to come
		}
	}
}

func (w *world) cutSomething(c *cluster) {
	p := w.clusters[w.rng.IntN(len(w.clusters))]
	if p == c {
		return
	}
	c.cut[p.id] = !c.cut[p.id]
	w.say("%s reads %s: %t", c.id, p.id, !c.cut[p.id])
	if c.cut[p.id] && w.rng.IntN(3) == 0 {
		w.now = w.now.Add(lasts)
	}
}

// roll is a step of a rolling restart: pods become ready, and are replaced.
func (c *cluster) roll() {
	for _, p := range c.pods {
		if !p.ready && !p.dead {
			c.w.say("%s: pod %s is ready", c.id, p.ip)
			p.ready = true
			return
		}
	}
	for _, p := range c.pods {
		if !p.dead && !p.kept && c.w.rng.IntN(2) == 0 {
			c.w.say("%s: pod %s dies, another is created", c.id, p.ip)
			p.dead = true
			c.addPod(p.app, false, false)
			c.pods = slices.DeleteFunc(c.pods, func(q *pod) bool { return q == p })
			return
		}
	}
}

// checkAtRest: where everything was seen by everybody, nobody is without an
// endpoint if one is given, and nobody uses an endpoint that is dead.
func (w *world) checkAtRest() {
	for _, c := range w.honest() {
		kept := c.decide(c.input()).Facts.Kept // the last that there was, and nothing in its place
		if working, usable := c.working(), c.usable(); !kept && !slices.Equal(working, usable) {
			w.fail("%s: uses %v at rest, and %v work", c.id, usable, working)
		}
		if len(c.working()) == 0 && c.api.service() != nil && !c.alone() {
			w.fail("%s: has no endpoint at rest", c.id)
		}
	}
	w.checkSources()
}

// checkSources: a replica that was made a source is not one of two at rest that
// do not say what is the matter.
func (w *world) checkSources() {
	silent, made := 0, false
	for _, c := range w.honest() {
		p, f := published(c.own).Service, c.decide(c.input()).Facts
		if p == nil || p.Spec.Role != v1alpha1.RoleSource || f.Conflict+f.Holds != "" {
			continue
		}
		silent++
		made = made || p.Spec.Replica && p.Spec.Mode == v1alpha1.ModeNone
	}
	if silent > 1 && made {
		w.fail("%d sources at rest", silent)
	}
}

// checkExpired: endpoints of a cluster that is silent for as long as its lease
// are not ready where others are, and are there where none is.
func (w *world) checkExpired() {
	for _, c := range w.clusters {
		var fresh, expired, kept int
		for _, s := range c.api.slices() {
			if s.Labels[discoveryv1.LabelServiceName] != key.Name {
				continue
			}
			parts := endpointslice.Parts(s)
			if parts == nil {
				parts = []model.Part{{Cluster: c.id, Endpoints: s.Endpoints}}
			}
			for _, p := range parts {
				for _, e := range p.Endpoints {
					switch {
					case *e.Conditions.Ready && c.cut[p.Cluster]:
						expired++
					case *e.Conditions.Ready:
						fresh++
					case c.cut[p.Cluster] && *e.Conditions.Serving && *e.Conditions.Terminating:
						kept++
					}
				}
			}
		}
		if fresh > 0 && expired > 0 {
			w.fail("%s: uses %d endpoints of silent clusters beside %d others", c.id, expired, fresh)
		}
		if fresh+expired == 0 && kept > 0 {
			w.fail("%s: leaves %d endpoints of silent clusters aside, and has no other", c.id, kept)
		}
	}
}

// checkRestart: a second pass, and one by a process that has just started,
// write nothing.
func (w *world) checkRestart() {
	before := w.state()
	for _, c := range w.honest() {
		c.start()
		for _, v := range c.peers {
			v.catchUp()
		}
		if r := c.decide(c.input()); len(r.Writes) > 0 {
			w.fail("%s: a restart writes: %s %s", c.id, r.Writes[0].Verb, keyOf(r.Writes[0].Object))
		}
	}
	if after := w.state(); after != before {
		w.fail("a restart changes %s to %s", before, after)
	}
}

// TestSimulationSeesFaults breaks the model once for each invariant: a check
// that cannot fail is none.
func TestSimulationSeesFaults(t *testing.T) {
	drop := func(r *model.Result, gone func(model.Write) bool) { r.Writes = slices.DeleteFunc(r.Writes, gone) }
	faults := []struct {
		name, says string
		break_     func(model.Config, model.Input, *model.Result)
	}{
		{"commit without waiting for answers", "no endpoint", func(_ model.Config, _ model.Input, r *model.Result) {
			for _, w := range r.Writes {
				if s, ok := w.Object.(*v1alpha1.PublishedService); ok && s.Spec.Handover != nil && s.Spec.Handover.Phase == v1alpha1.PhasePreparing {
					s.Spec.Handover.Phase = v1alpha1.PhaseCommitted
				}
			}
		}},
		{"take away before adding", "no endpoint", func(_ model.Config, in model.Input, r *model.Result) {
			for _, s := range in.Local.Slices {
				if s.Labels[discoveryv1.LabelManagedBy] == v1alpha1.ManagedBy && len(r.Writes) > 0 {
					r.Writes = slices.Insert(r.Writes, 0, model.Write{Verb: model.Delete, Where: model.Own, Object: s})
					return
				}
			}
		}},
		{"follow no change of a slice", "at rest", func(_ model.Config, _ model.Input, r *model.Result) {
			drop(r, func(w model.Write) bool {
				_, slice := w.Object.(*discoveryv1.EndpointSlice)
				return slice && w.Verb == model.Update
			})
		}},
		{"leave what Kubernetes leaves behind", "at rest", func(_ model.Config, _ model.Input, r *model.Result) {
			drop(r, func(w model.Write) bool {
				return w.Object == w.Before || w.Verb == model.Delete && w.Object.GetLabels()[discoveryv1.LabelManagedBy] == "endpointslice-controller.k8s.io"
			})
		}},
		{"label a Service that somebody else made", "changes more", func(_ model.Config, _ model.Input, r *model.Result) {
			for _, w := range r.Writes {
				if s, ok := w.Object.(*corev1.Service); ok && w.Verb == model.Update && s != w.Before {
					s.Labels = map[string]string{"seen": "true", v1alpha1.LabelReplica: s.Labels[v1alpha1.LabelReplica]}
				}
			}
		}},
		{"forget the selector", "is lost", func(_ model.Config, _ model.Input, r *model.Result) {
			for _, w := range r.Writes {
				if s, ok := w.Object.(*corev1.Service); ok && s != w.Before {
					delete(s.Annotations, v1alpha1.AnnotationSelector)
				}
			}
		}},
		{"go on using what has expired", "silent clusters", func(_ model.Config, _ model.Input, r *model.Result) {
			drop(r, func(w model.Write) bool {
				return w.Object.GetAnnotations()[v1alpha1.AnnotationStale] == v1alpha1.StaleExpired
			})
		}},
		{"write in every pass", "come to rest|restart", func(_ model.Config, in model.Input, r *model.Result) {
			if s := in.Published.Service; s != nil {
				next := s.DeepCopy()
				next.Labels["pass"] = fmt.Sprint(in.Now.UnixNano())
				r.Writes = append(r.Writes, model.Write{Verb: model.Update, Where: model.Publications, Object: next, Before: s})
			}
		}},
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			for s := range uint64(100) {
				if w := explore(t, s+1, f.break_); w.failed != "" {
					if slices.ContainsFunc(strings.Split(f.says, "|"), func(says string) bool { return strings.Contains(w.failed, says) }) {
						return
					}
					t.Logf("seed %d: %s", s+1, w.failed)
				}
			}
			t.Error("nothing noticed")
		})
	}
}

// TestOrderDoesNotMatter has people do the same in the same order, while all
// that comes between is drawn anew: it comes to the same.
func TestOrderDoesNotMatter(t *testing.T) {
	for script := range uint64(8) {
		var first string
		for schedule := range uint64(4) {
			w := newWorld(t, script, 3)
			w.clusters[0].native(2)
			w.clusters[1].addPod("cart", true, true)
			w.clusters[2].addPod("cart", true, true)
			w.settle()
			for range 4 {
				c := w.clusters[w.rng.IntN(3)]
				c.mode([]string{"source", "receiver", "union", "singular", ""}[w.rng.IntN(5)])
				people := w.rng
				w.rng = rand.New(rand.NewPCG(schedule, 2))
				w.calm(120)
				w.settle()
				w.rng = people
			}
			if w.failed != "" {
				t.Fatalf("script %d, schedule %d: %s\n%s", script, schedule, w.failed, strings.Join(w.trace, "\n"))
			}
			if state := w.state(); first == "" {
				first = state
			} else if state != first {
				t.Errorf("script %d, schedule %d comes to\n%s, and schedule 0 to\n%s\n%s", script, schedule, state, first, strings.Join(w.trace, "\n"))
			}
		}
	}
}

// calm lets controllers crash and see things late, but people do nothing.
func (w *world) calm(steps int) {
	w.chaos = true
	for range steps {
		w.now = w.now.Add(time.Duration(w.rng.IntN(300)) * time.Millisecond)
		c := w.clusters[w.rng.IntN(len(w.clusters))]
		switch n := w.rng.IntN(10); {
		case n < 6 && c.up:
			c.look()
			c.reconcile()
		case n < 7:
			c.kubernetes()
		case n < 8 && c.up:
			c.renew()
		case !c.up:
			c.start()
		}
	}
}

// TestUnlistedPeerIsAsked: a leader that begins to read a cluster anew before it
// hands over waits for it, though it does not know yet whether it is read there.
func TestUnlistedPeerIsAsked(t *testing.T) {
	w := newWorld(t, 1, 3)
	a, b, c := w.clusters[0], w.clusters[1], w.clusters[2]
	a.native(1)
	b.addPod("cart", true, true)
	w.settle()
	a.apply(func(s *corev1.Service) { setTo(s, b.id) })
	a.mode("receiver")
	phase := func() v1alpha1.Phase {
		if s := all[*v1alpha1.PublishedService](a.api.objects); len(s) > 0 && s[0].Spec.Handover != nil {
			return s[0].Spec.Handover.Phase
		}
		return ""
	}
	w.before = func(int) {
		if phase() == v1alpha1.PhaseJoining && !a.cut[c.id] {
			a.peers[c.id], a.cut[c.id] = newView(c.api), true
		}
	}
	w.settle()
	if got := phase(); got != v1alpha1.PhaseJoining {
		t.Errorf("the handover is %s, and nobody asked %s", got, c.id)
	}
	w.before = nil
	clear(a.cut)
	w.settle()
	if got := phase(); got != v1alpha1.PhaseDone || w.failed != "" {
		t.Errorf("the handover is %s: %s\n%s", got, w.failed, strings.Join(w.trace, "\n"))
	}
}

// TestCrashAtEveryWrite has a controller crash before each write of each kind
// of migration and of taking it back: it comes to what it comes to without.
func TestCrashAtEveryWrite(t *testing.T) {
	type wish struct {
		cluster int
		mode    string
	}
	for name, wishes := range map[string][]wish{
		"receiver":  {{0, "receiver"}, {0, ""}},
		"source":    {{1, "source"}, {1, ""}},
		"union":     {{0, "union"}, {1, "source"}, {1, ""}},
		"singular":  {{0, "singular"}, {0, ""}},
		"alone":     {{1, "singular"}, {1, "union"}, {1, ""}},
		"back":      {{0, "receiver"}, {1, "receiver"}},
		"undecided": {{0, "receiver"}, {1, "singular"}, {1, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(crashAt int) *world {
				w := newWorld(t, 1, 3)
				w.clusters[0].native(2)
				w.clusters[1].addPod("cart", true, true)
				w.clusters[1].addPod("cart", true, true)
				w.settle()
				w.writes, w.crashAt = 0, crashAt
				for _, wish := range wishes {
					if c := w.clusters[wish.cluster]; wish.mode == "receiver" {
						c.apply(func(s *corev1.Service) {
							setTo(s, w.clusters[1-wish.cluster].id)
						})
					}
					w.clusters[wish.cluster].mode(wish.mode)
					w.settle()
					w.checkAtRest()
					w.checkRestart()
				}
				return w
			}
			whole := run(0)
			if whole.failed != "" || whole.writes < 4 {
				t.Fatalf("%d writes, %s\n%s", whole.writes, whole.failed, strings.Join(whole.trace, "\n"))
			}
			for at := 1; at <= whole.writes; at++ {
				w := run(at)
				if w.failed != "" {
					t.Errorf("crash before write %d: %s\n%s", at, w.failed, strings.Join(w.trace, "\n"))
				}
				if w.state() != whole.state() {
					t.Errorf("crash before write %d comes to\n%s, and without to\n%s", at, w.state(), whole.state())
				}
			}
			t.Logf("%d writes", whole.writes)
		})
	}
}

// TestAskAtEveryWrite has somebody change their mind before each single write of
// a migration: it comes to what it comes to if they wait until it is over.
func TestAskAtEveryWrite(t *testing.T) {
	for _, first := range []string{"", "source", "union"} {
		for _, last := range []string{"", "source", "union"} {
			t.Run(fmt.Sprintf("%q, receiver, %q", first, last), func(t *testing.T) {
				run := func(at int) (w *world, asked bool) {
					w = newWorld(t, 1, 2)
					w.clusters[0].native(2)
					w.clusters[1].addPod("cart", true, true)
					w.clusters[1].addPod("cart", true, true)
					w.settle()
					w.clusters[0].mode(first)
					w.settle()
					w.clusters[0].mode("receiver")
					w.writes = 0
					w.before = func(write int) {
						if write == at && !asked {
							asked = true
							w.clusters[0].mode(last)
						}
					}
					w.settle()
					if at == 0 {
						w.clusters[0].mode(last)
						w.settle()
					}
					w.checkAtRest()
					w.checkRestart()
					return w, asked
				}
				late, _ := run(0)
				for at := 1; ; at++ {
					w, asked := run(at)
					if !asked {
						t.Logf("%d writes", at-1)
						return
					}
					if w.failed != "" || w.state() != late.state() {
						t.Errorf("asked before write %d: %s comes to\n%s, and late to\n%s", at, w.failed, w.state(), late.state())
					}
				}
			})
		}
	}
}

func setTo(s *corev1.Service, id model.ClusterID) {
	if s.Annotations == nil {
		s.Annotations = make(map[string]string)
	}
	s.Annotations[v1alpha1.AnnotationTo] = string(id)
}
