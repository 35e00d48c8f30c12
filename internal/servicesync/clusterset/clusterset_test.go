package clusterset

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
)

func TestOverlaps(t *testing.T) {
	got := Overlaps([]string{"10.0.0.0/16", "fd00::/48", "none"}, []string{"10.0.128.0/24", "10.1.0.0/16", "fd00:0:0:1::/64"})
	if diff := cmp.Diff([][2]string{{"10.0.0.0/16", "10.0.128.0/24"}, {"fd00::/48", "fd00:0:0:1::/64"}}, got); diff != "" {
		t.Error(diff)
	}
}

func TestPeering(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	lease := &v1alpha1.ClusterLease{Spec: v1alpha1.ClusterLeaseSpec{DurationSeconds: 40, Complete: true, Services: 2}}
	p := PeerState{Lease: lease, Heard: now, Synced: true, Services: 2}
	for _, c := range []struct {
		after     time.Duration
		health    Health
		confirmed bool
	}{{0, Live, true}, {20 * time.Second, Stale, false}, {40 * time.Second, Expired, false}} {
		health, _ := p.Health(now.Add(c.after))
		if confirmed := p.Confirmed(now.Add(c.after)); health != c.health || confirmed != c.confirmed {
			t.Errorf("after %s: %s, confirmed %t", c.after, health, confirmed)
		}
	}
	lease.Spec.DurationSeconds = 1 << 30 // as a peer may say that wants to stay
	if health, _ := p.Health(now.Add(LongestLease)); health != Expired {
		t.Errorf("a lease of %d s makes a peer that is silent for %s %s", lease.Spec.DurationSeconds, LongestLease, health)
	}
	lease.Spec.DurationSeconds = 40
	for name, change := range map[string]func(*PeerState){
		"not all is seen":        func(p *PeerState) { p.Services = 1 },
		"it is not listed":       func(p *PeerState) { p.Synced = false },
		"it has not read all":    func(p *PeerState) { p.Lease.Spec.Complete = false },
		"it has no lease at all": func(p *PeerState) { p.Lease = nil },
	} {
		q := p
		q.Lease = lease.DeepCopy()
		if change(&q); q.Confirmed(now) {
			t.Errorf("confirmed although %s", name)
		}
	}
}

// TestPublished finds the slices of both fields, and tells if some are missing.
func TestPublished(t *testing.T) {
	slice := func(addresses ...string) v1alpha1.PublishedEndpoints {
		return v1alpha1.PublishedEndpoints{AddressType: "IPv4", Endpoints: []v1alpha1.EndpointGroup{{Addresses: addresses}}}
	}
	apart := &v1alpha1.PublishedSlice{Spec: v1alpha1.PublishedSliceSpec{PublishedEndpoints: slice("10.0.0.1")}}
	p := Published{Service: &v1alpha1.PublishedService{Spec: v1alpha1.PublishedServiceSpec{
		Total: 3, Slices: []v1alpha1.InlineSlice{{Name: "a/b", PublishedEndpoints: slice("10.0.0.2", "10.0.0.3")}},
	}}}
	if p.Whole(p.All()) {
		t.Error("a slice is missing")
	}
	p.Slices = append(p.Slices, apart)
	all := p.All()
	if len(all) != 2 || !p.Whole(all) || all[1].Name != Digest("a/b") {
		t.Errorf("%d slices, the last with the name %q, which annotations cannot hold unless it is a digest", len(all), all[len(all)-1].Name)
	}
}
