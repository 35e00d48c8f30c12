package model

import (
	"net/netip"
	"slices"
	"time"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
)

// Peering is what is known of a peer as a whole.
type Peering struct {
	// Lease is the newest that was read; nil: none ever.
	Lease *v1alpha1.ClusterLease
	// Heard is when Lease was last seen to change, of the own clock, remembered
	// over restarts; where nothing is remembered, when reading began.
	Heard time.Time
	// Duration is how long the lease lasts, where Lease is not known.
	Duration time.Duration
	// Synced says that all of its publications were listed.
	Synced bool
	// Services counts its PublishedServices seen.
	Services int
	// Forgotten is as in Peer.
	Forgotten bool
}

// LongestLease bounds for how long a peer's silence says nothing, whatever its
// lease says: a peer cannot make what it published stay for good.
const LongestLease = time.Hour

// defaultLease is how long a lease lasts of which nothing is known.
const defaultLease = 40 * time.Second

// Health judges the peer, and says when the verdict changes if nothing is heard.
func (p Peering) Health(now time.Time) (Health, time.Time) {
	lasts := p.Duration
	if p.Lease != nil {
		lasts = time.Duration(p.Lease.Spec.DurationSeconds) * time.Second
	}
	if lasts <= 0 {
		lasts = defaultLease
	}
	lasts = min(lasts, LongestLease)
	stale, expired := p.Heard.Add(lasts/2), p.Heard.Add(lasts)
	switch {
	case now.Before(stale):
		return Live, stale
	case now.Before(expired):
		return Stale, expired
	default:
		return Expired, time.Time{}
	}
}

// Confirmed reports whether what is not seen of the peer does not exist: it is
// alive, has published all that there is, and nothing of that is missing here.
func (p Peering) Confirmed(now time.Time) bool {
	health, _ := p.Health(now)
	return health == Live && p.Synced && p.Lease != nil && p.Lease.Spec.Complete && p.Services >= int(p.Lease.Spec.Services)
}

// Peer is what Decide wants to know of the peer for one Service.
func (p Peering) Peer(own ClusterID, now time.Time, published Published) Peer {
	health, _ := p.Health(now)
	return Peer{
		Health:    health,
		Synced:    p.Synced,
		Confirmed: p.Confirmed(now),
		Reads:     p.Lease != nil && slices.Contains(p.Lease.Spec.Peers, string(own)),
		Forgotten: p.Forgotten,
		Published: published,
	}
}

// Overlaps returns the pairs of ranges, one of each side, that share addresses.
// What is no range is left out.
func Overlaps(ours, theirs []string) [][2]string {
	var pairs [][2]string
	for _, a := range ours {
		for _, b := range theirs {
			if p, err := netip.ParsePrefix(a); err == nil {
				if q, err := netip.ParsePrefix(b); err == nil && p.Overlaps(q) {
					pairs = append(pairs, [2]string{a, b})
				}
			}
		}
	}
	return pairs
}
