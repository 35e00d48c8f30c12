package model_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/model"
)

// A world is a few clusters on one clock, with everything between them that can
// go wrong, drawn from a seed.
type world struct {
	t        *testing.T
	rng      *rand.Rand
	now      time.Time
	clusters []*cluster
	trace    []string
	failed   string
	lies     int  // publications of a hostile cluster
	asked    bool // somebody has asked for something
	deleted  bool // somebody has deleted a Service with its pods, and not all know
	decided  int  // how often
	writes   int  // carried out or prevented by a crash
	crashAt  int  // the write before which a controller crashes; 0: none
	chaos    bool
	perSlice int                                                     // see model.Config
	apart    bool                                                    // the same
	trust    model.Trusts                                            // the same; nil: trusting
	carry    model.Carry                                             // the same
	moved    int                                                     // how many times all pods have come to listen elsewhere
	before   func(write int)                                         // what happens before a write
	break_   func(cfg model.Config, in model.Input, r *model.Result) // what a test breaks on purpose
}

var key = types.NamespacedName{Namespace: "shop", Name: "cart"}

// cluster is an API, the controllers of Kubernetes, pods, and one of ours.
type cluster struct {
	w    *world
	id   model.ClusterID
	api  *api
	pods []*pod
	next int // of pods' addresses

	up      bool
	own     *view
	peers   map[model.ClusterID]*view
	heard   map[model.ClusterID]time.Time
	renewed map[model.ClusterID]time.Time // the RenewTime that was heard
	cut     map[model.ClusterID]bool      // cannot read that cluster

	hostile  bool   // it has no controller of ours, and publishes what it likes
	original string // the selector that somebody gave the Service, as JSON
	gone     bool   // singular, or its Service is gone: no promise holds
}

// pod is ready once, then dead: one that comes back is another pod.
type pod struct {
	ip    string
	app   string
	ready bool
	dead  bool
	kept  bool // never killed by chaos
}

func newWorld(t *testing.T, seed uint64, n int) *world {
	w := &world{t: t, carry: model.Carry{Labels: []string{"te*", "tier"}, Annotations: []string{"note"}}, rng: rand.New(rand.NewPCG(seed, 1)), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	for i := range n {
		c := &cluster{
			w: w, id: model.ClusterID(rune('a' + i)), api: &api{objects: make(map[string]model.Object)},
			heard: make(map[model.ClusterID]time.Time), renewed: make(map[model.ClusterID]time.Time), cut: make(map[model.ClusterID]bool),
		}
		w.clusters = append(w.clusters, c)
	}
	for _, c := range w.clusters {
		c.start()
		c.renew()
	}
	return w
}

// honest are the clusters that run our controller.
func (w *world) honest() []*cluster {
	return slices.DeleteFunc(slices.Clone(w.clusters), func(c *cluster) bool { return c.hostile })
}

// of is the cluster of that name.
func (w *world) of(id model.ClusterID) *cluster { return w.clusters[id[0]-'a'] }

func (w *world) say(format string, args ...any) {
	w.trace = append(w.trace, w.now.Format("04:05.000 ")+fmt.Sprintf(format, args...))
}

// fail records the first violation.
func (w *world) fail(format string, args ...any) {
	if w.failed == "" {
		w.failed = fmt.Sprintf(format, args...)
		w.say("VIOLATION %s", w.failed)
	}
}

// start is a controller's start: it knows what its API holds, or held.
func (c *cluster) start() {
	c.up = true
	c.own = newView(c.api)
	c.own.catchUp()
	c.peers = make(map[model.ClusterID]*view)
	for _, p := range c.w.clusters {
		if p != c {
			c.peers[p.id] = newView(p.api)
			if _, ok := c.heard[p.id]; !ok {
				c.heard[p.id] = c.w.now
			}
		}
	}
}

// lasts is how long a lease does.
const lasts = 40 * time.Second

// renew writes the lease.
func (c *cluster) renew() {
	l := &v1alpha1.ClusterLease{Spec: v1alpha1.ClusterLeaseSpec{
		FormatVersion: 1, Cluster: string(c.id), DurationSeconds: int32(lasts / time.Second), Complete: true, RenewTime: metav1.MicroTime{Time: c.w.now},
	}}
	l.Name, l.Namespace = string(c.id), "servicesync"
	for _, p := range c.w.clusters {
		if p != c {
			l.Spec.Peers = append(l.Spec.Peers, string(p.id))
		}
	}
	// The controller counts what there is to be: here the one Service or none.
	if len(all[*v1alpha1.PublishedService](c.own.objects)) > 0 && c.own.objects["*v1.Service "+key.String()] != nil {
		l.Spec.Services = 1
	}
	_, exists := c.api.objects[keyOf(l)]
	c.api.put(l, !exists)
}

// hear notes which leases have changed.
func (c *cluster) hear() {
	for id, v := range c.peers {
		for _, l := range all[*v1alpha1.ClusterLease](v.objects) {
			if !l.Spec.RenewTime.Time.Equal(c.renewed[id]) {
				c.renewed[id], c.heard[id] = l.Spec.RenewTime.Time, c.w.now
			}
		}
	}
}

// input is what the controller sees.
func (c *cluster) input() model.Input {
	in := model.Input{Now: c.w.now, Service: key, Peers: make(map[model.ClusterID]model.Peer)}
	in.Local.Namespace = true
	in.Local.Service, _ = c.own.objects["*v1.Service "+key.String()].(*corev1.Service)
	in.Local.Endpoints, _ = c.own.objects["*v1.Endpoints "+key.String()].(*corev1.Endpoints) //nolint:staticcheck // what Kubernetes still writes
	in.Local.Export, _ = c.own.objects["*v1beta1.ServiceExport "+key.String()].(*mcs.ServiceExport)
	in.Local.Import, _ = c.own.objects["*v1beta1.ServiceImport "+key.String()].(*mcs.ServiceImport)
	in.Local.Derived, _ = c.own.objects["*v1.Service "+key.Namespace+"/"+model.DerivedName(key)].(*corev1.Service)
	for _, s := range all[*discoveryv1.EndpointSlice](c.own.objects) {
		switch s.Labels[discoveryv1.LabelServiceName] {
		case key.Name:
			in.Local.Slices = append(in.Local.Slices, s)
		case model.DerivedName(key):
			in.Local.DerivedSlices = append(in.Local.DerivedSlices, s)
		}
	}
	in.Published = published(c.own)
	for _, id := range slices.Sorted(maps.Keys(c.peers)) {
		v := c.peers[id]
		pub := published(v)
		p := model.PeerState{Heard: c.heard[id], Duration: lasts, Synced: v.listed}
		if leases := all[*v1alpha1.ClusterLease](v.objects); len(leases) > 0 {
			p.Lease = leases[0]
		}
		if pub.Service != nil {
			p.Services = 1
		}
		in.Peers[id] = p.Peer(c.id, c.w.now, pub)
	}
	return in
}

func published(v *view) model.Published {
	p := model.Published{Slices: all[*v1alpha1.PublishedSlice](v.objects)}
	if s := all[*v1alpha1.PublishedService](v.objects); len(s) > 0 {
		p.Service = s[0]
	}
	return p
}

func (c *cluster) config() model.Config {
	cfg := model.Config{Cluster: c.id, Namespace: "servicesync", StableFor: 3 * time.Second, PerSlice: c.w.perSlice, Apart: c.w.apart, Trust: c.w.trust, Carry: c.w.carry}
	if cfg.Trust == nil {
		cfg.Trust = trusting()
	}
	return cfg
}

// trusting lets every peer do all that a peer can be let do.
func trusting() model.Trusts {
	return model.Trusts{model.Everybody: {
		Claim: true, Selector: true,
		Types: []corev1.ServiceType{corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName},
	}}
}

// reconcile runs one decision, or the part of it before a crash, and says how
// many writes there were.
func (c *cluster) reconcile() int {
	if !c.up {
		return 0
	}
	in := c.input()
	before := ""
	if c.w.decided++; c.w.decided%16 == 0 {
		before = mustJSON(in)
	}
	r := c.decide(in)
	if before != "" && mustJSON(in) != before {
		c.w.fail("%s: Decide changed its input", c.id)
	}
	for i, write := range r.Writes {
		if c.w.before != nil {
			c.w.before(c.w.writes + 1)
		}
		if c.w.writes++; c.w.writes == c.w.crashAt {
			c.crash("before")
			return i + 1
		}
		if c.w.chaos && c.w.rng.IntN(40) == 0 {
			c.crash("before")
			return i
		}
		if !c.carryOut(write) {
			return i + 1
		}
		if c.w.chaos && c.w.rng.IntN(40) == 0 {
			c.crash("after")
			return i + 1
		}
	}
	return len(r.Writes)
}

// decide is Decide, broken where a test breaks it.
func (c *cluster) decide(in model.Input) model.Result {
	r := model.Decide(c.config(), in)
	if c.w.break_ != nil {
		c.w.break_(c.config(), in, &r)
	}
	return r
}

func (c *cluster) crash(when string) {
	c.w.say("%s crashes %s a write", c.id, when)
	c.up = false
}

// carryOut writes as an API server does, and checks what may be written.
func (c *cluster) carryOut(w model.Write) bool {
	o := w.Object.DeepCopyObject().(model.Object)
	now := c.api.objects[keyOf(o)]
	working := len(c.working())
	switch w.Verb {
	case model.Create:
		if now != nil {
			return false
		}
		c.mayCreate(o)
		c.mayHold(nil, o)
		c.api.put(o, true)
	case model.Update, model.UpdateStatus:
		if now == nil || now.GetResourceVersion() != w.Before.GetResourceVersion() {
			return false
		}
		c.mayUpdate(now, o)
		c.mayHold(now, o)
		c.mayCommit(now, o)
		c.api.put(o, false)
	case model.Delete:
		if now == nil || now.GetResourceVersion() != o.GetResourceVersion() {
			return false
		}
		c.mayDelete(now)
		c.api.remove(now)
	}
	c.w.say("%s %s %s: %s %s", c.id, w.Verb, keyOf(o), w.Why, brief(o))
	if working > 0 && len(c.working()) == 0 && !c.w.deleted && !c.alone() && !c.told() && !c.joined() {
		c.w.fail("%s: %s %s leaves no endpoint that works", c.id, w.Verb, keyOf(o))
	}
	c.checkSelector()
	return true
}

// alone reports whether the Service is asked to stand alone, or is gone.
func (c *cluster) alone() bool {
	s := c.api.service()
	if s == nil || c.gone || s.Annotations[v1alpha1.AnnotationMode] == "singular" {
		return true
	}
	// A replica of nobody: whoever had the Service took it away or stands alone.
	for _, o := range c.w.clusters {
		if os := o.api.service(); os != nil && !o.gone && os.Annotations[v1alpha1.AnnotationMode] != "singular" && os.Annotations[v1alpha1.AnnotationRole] != "singular" && len(o.readyPods()) > 0 && len(os.Spec.Selector) > 0 {
			return false
		}
	}
	return true
}

// told reports whether a cluster that gave has said, as far as is seen here,
// that it stands alone or has the Service no more.
func (c *cluster) told() bool {
	if s, ok := c.own.objects["*v1.Service "+key.String()].(*corev1.Service); ok && s.Annotations[v1alpha1.AnnotationMode] == "singular" {
		return true
	}
	for id, v := range c.peers {
		if c.w.of(id).hostile {
			continue
		}
		if p := published(v); v.listed && (p.Service == nil || p.Service.Spec.Role == v1alpha1.RoleSingular) {
			return true
		}
	}
	return false
}

func brief(o model.Object) string {
	switch o := o.(type) {
	case *corev1.Service:
		return fmt.Sprintf("selector=%v %v", o.Spec.Selector, o.Annotations)
	case *discoveryv1.EndpointSlice:
		var out []string
		for _, e := range o.Endpoints {
			out = append(out, fmt.Sprintf("%s:%t/%t", e.Addresses[0], *e.Conditions.Ready, *e.Conditions.Serving))
		}
		return fmt.Sprint(out)
	case *v1alpha1.PublishedService:
		s := o.Spec
		return fmt.Sprintf("%s mode=%q asked=%t ready=%d/%d slices=%d handover=%s seen=%s", s.Role, s.Mode, s.Asked, s.Ready, s.Total, len(s.Slices), mustJSON(s.Handover), mustJSON(s.Seen))
	case *v1alpha1.PublishedSlice:
		return fmt.Sprintf("%d endpoints", endpointsIn(o))
	}
	return ""
}

func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// Unowned objects stay as they are.

func (c *cluster) mayCreate(o model.Object) {
	if es, ok := o.(*discoveryv1.EndpointSlice); ok && es.Labels[discoveryv1.LabelManagedBy] != v1alpha1.ManagedBy {
		c.w.fail("%s: creates a slice that is nobody's: %s", c.id, es.Name)
	}
}

func (c *cluster) mayUpdate(old, o model.Object) {
	switch old := old.(type) {
	case *discoveryv1.EndpointSlice:
		if old.Labels[discoveryv1.LabelManagedBy] != v1alpha1.ManagedBy {
			c.w.fail("%s: updates the slice %s, which is not its own", c.id, old.Name)
		}
	case *corev1.Service:
		if old.Labels[v1alpha1.LabelReplica]+old.Labels[v1alpha1.LabelImport] != "" {
			return
		}
		a, b := old.DeepCopy(), o.(*corev1.Service).DeepCopy()
		if !strings.Contains(mustJSON(a.Annotations), v1alpha1.GroupName) && !c.w.asked {
			c.w.fail("%s: updates a Service of which nobody asked anything", c.id)
		}
		for _, s := range []*corev1.Service{a, b} {
			s.Spec.Selector, s.ResourceVersion = nil, ""
			maps.DeleteFunc(s.Annotations, func(k, _ string) bool { return strings.HasPrefix(k, v1alpha1.GroupName) })
			if len(s.Annotations) == 0 {
				s.Annotations = nil
			}
		}
		if mustJSON(a) != mustJSON(b) {
			c.w.fail("%s: changes more of a Service than a migration asks for: %s to %s", c.id, mustJSON(a), mustJSON(b))
		}
	}
}

// mayCommit: a handover is committed once all who may read the cluster have
// answered. Here all do.
func (c *cluster) mayCommit(old, o model.Object) {
	was, ok := old.(*v1alpha1.PublishedService)
	if !ok || was.Spec.Handover == nil || was.Spec.Handover.Phase != v1alpha1.PhaseJoining {
		return
	}
	h := o.(*v1alpha1.PublishedService).Spec.Handover
	if h == nil || h.Phase != v1alpha1.PhaseCommitted || len(h.Heirs) == 0 {
		return
	}
	for _, p := range c.w.honest() {
		if p == c || !c.w.now.Before(c.heard[p.id].Add(lasts)) {
			continue
		}
		answered := slices.ContainsFunc(all[*v1alpha1.PublishedService](p.api.objects), func(s *v1alpha1.PublishedService) bool {
			return slices.ContainsFunc(s.Spec.Seen, func(seen v1alpha1.Seen) bool { return seen.Cluster == string(c.id) && seen.Turn == h.Turn })
		})
		if !answered {
			c.w.fail("%s: commits turn %d, and %s has not answered", c.id, h.Turn, p.id)
		}
	}
}

func (c *cluster) mayDelete(o model.Object) {
	switch o := o.(type) {
	case *corev1.Service:
		if o.Labels[v1alpha1.LabelReplica]+o.Labels[v1alpha1.LabelImport] == "" {
			c.w.fail("%s: deletes a Service that is not its own", c.id)
		}
	case *discoveryv1.EndpointSlice:
		s := c.api.service()
		left := s != nil && len(s.Spec.Selector) == 0 && s.Annotations[v1alpha1.AnnotationSelector] != ""
		if o.Labels[discoveryv1.LabelManagedBy] != v1alpha1.ManagedBy && !left {
			c.w.fail("%s: deletes the slice %s, which is not its own", c.id, o.Name)
		}
	}
}

// checkSelector: a selector that was given is there, or kept.
func (c *cluster) checkSelector() {
	s := c.api.service()
	if s == nil || c.original == "" {
		return
	}
	if mustJSON(s.Spec.Selector) != c.original && s.Annotations[v1alpha1.AnnotationSelector] != c.original {
		c.w.fail("%s: the selector %s is lost", c.id, c.original)
	}
}

// readyPods are those that answer.
func (c *cluster) readyPods() []*pod {
	var out []*pod
	for _, p := range c.pods {
		if p.ready && !p.dead {
			out = append(out, p)
		}
	}
	return out
}

// usable are the addresses that a proxy of the cluster would use.
func (c *cluster) usable() []string {
	var ready, serving []string
	for _, s := range c.api.slices() {
		if s.Labels[discoveryv1.LabelServiceName] != key.Name {
			continue
		}
		for _, e := range s.Endpoints {
			switch {
			case *e.Conditions.Ready:
				ready = append(ready, e.Addresses[0])
			case *e.Conditions.Serving && *e.Conditions.Terminating:
				serving = append(serving, e.Addresses[0])
			}
		}
	}
	if c.api.service() == nil {
		return nil
	}
	if len(ready) > 0 {
		serving = ready
	}
	sort.Strings(serving)
	return slices.Compact(serving)
}

// working are the usable ones whose pod answers.
func (c *cluster) working() []string {
	var out []string
	for _, ip := range c.usable() {
		for _, o := range c.w.clusters {
			if slices.ContainsFunc(o.readyPods(), func(p *pod) bool { return p.ip == ip }) {
				out = append(out, ip)
			}
		}
	}
	return out
}

// kubernetes is one pass of the endpointslice controller.
func (c *cluster) kubernetes() {
	s := c.api.service()
	name := key.Name + "-k8s"
	old, _ := c.api.objects["*v1.EndpointSlice "+key.Namespace+"/"+name].(*discoveryv1.EndpointSlice)
	if s == nil || len(s.Spec.Selector) == 0 {
		return // and leaves the slices behind
	}
	next := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	next.Name, next.Namespace = name, key.Namespace
	next.Labels = map[string]string{discoveryv1.LabelServiceName: key.Name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}
	port, tcp, none := int32(8080+c.w.moved), corev1.ProtocolTCP, ""
	next.Ports = []discoveryv1.EndpointPort{{Name: &none, Port: &port, Protocol: &tcp}}
	for _, p := range c.pods {
		if p.app == s.Spec.Selector["app"] && !p.dead {
			no := false
			ready := p.ready
			next.Endpoints = append(next.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{p.ip}, Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready, Terminating: &no},
			})
		}
	}
	if old != nil {
		next.UID, next.ResourceVersion = old.UID, old.ResourceVersion
		if mustJSON(old) == mustJSON(next) {
			return
		}
	}
	c.api.put(next, old == nil)
}

func (c *cluster) addPod(app string, ready, kept bool) {
	c.next++
	c.pods = append(c.pods, &pod{ip: fmt.Sprintf("10.%d.0.%d", c.id[0]-'a', c.next), app: app, ready: ready, kept: kept})
}

// apply is somebody's kubectl.
func (c *cluster) apply(change func(*corev1.Service)) {
	s := c.api.service()
	create := s == nil
	if create {
		s = &corev1.Service{}
		s.Name, s.Namespace = key.Name, key.Namespace
		s.CreationTimestamp = metav1.Time{Time: c.w.now}
		s.Spec.Type, s.Spec.ClusterIP = corev1.ServiceTypeClusterIP, "10.96.0.1"
		s.Spec.Ports = []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}
	}
	s = s.DeepCopy()
	change(s)
	c.api.put(s, create)
}

// mode annotates the Service, if there is one.
func (c *cluster) mode(m string) {
	if c.api.service() == nil {
		return
	}
	c.w.say("%s: somebody asks for %q", c.id, m)
	c.w.asked = true
	c.apply(func(s *corev1.Service) {
		if s.Annotations == nil {
			s.Annotations = make(map[string]string)
		}
		if s.Annotations[v1alpha1.AnnotationMode] = m; m == "" {
			delete(s.Annotations, v1alpha1.AnnotationMode)
		}
	})
}

// native creates the Service with a selector, and pods.
func (c *cluster) native(pods int) {
	for i := range pods {
		c.addPod("cart", true, i == 0)
	}
	c.apply(func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "cart"} })
	c.original = mustJSON(c.api.service().Spec.Selector)
	c.kubernetes()
}

// settle lets everything run in order, without faults but for the cuts, until
// nobody writes any more.
func (w *world) settle() {
	w.chaos = false
	rounds := 0
	for quiet := 0; quiet < 10; quiet++ {
		w.now = w.now.Add(time.Second)
		for _, c := range w.clusters {
			if c.hostile {
				continue
			}
			if !c.up {
				c.start()
			}
			c.kubernetes()
			c.own.catchUp()
			c.renew()
			for id, v := range c.peers {
				if !c.cut[id] {
					v.catchUp()
				}
			}
			c.hear()
			if c.reconcile() > 0 {
				quiet = 0
			}
			c.own.catchUp()
		}
		if rounds++; rounds > 200 {
			break
		}
	}
	w.deleted = w.deleted && slices.ContainsFunc(w.clusters, func(c *cluster) bool { return len(c.cut) > 0 })
	for _, c := range w.honest() {
		c.own.catchUp()
		if r := c.decide(c.input()); len(r.Writes) > 0 {
			w.fail("%s: does not come to rest: %s %s: %s", c.id, r.Writes[0].Verb, keyOf(r.Writes[0].Object), brief(r.Writes[0].Object))
		}
	}
}

// state is what the clusters came to, without names and numbers that chance gave.
func (w *world) state() string {
	var b strings.Builder
	for _, c := range w.clusters {
		fmt.Fprintf(&b, "%s:", c.id)
		if s := c.api.service(); s != nil {
			role := s.Annotations[v1alpha1.AnnotationRole]
			fmt.Fprintf(&b, " selector=%v role=%s answered=%s", s.Spec.Selector, role, s.Annotations[v1alpha1.AnnotationAnswered])
			if role == "" { // one with another role follows nobody
				fmt.Fprintf(&b, " replica=%s", s.Labels[v1alpha1.LabelReplica])
			}
			if s.Labels[v1alpha1.LabelReplica] == "" { // what a replica once adopted is its own memory
				fmt.Fprintf(&b, " kept=%s", s.Annotations[v1alpha1.AnnotationSelector])
			}
		}
		fmt.Fprintf(&b, " uses %v\n", c.usable())
	}
	return b.String()
}
