package clusterset

import (
	"net/netip"
	"slices"
	"time"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
)

// Peer is another cluster in one decision: what is known of it, and what it publishes of
// the Service.
type Peer struct {
	Health Health
	// Synced says that all publications of the peer have been listed since this
	// process began to read it. If it is false, Published means nothing, and the
	// objects that this cluster made from the peer's publications are the newest
	// state that is known.
	Synced bool
	// Confirmed says that an object that Published lacks does not exist; see
	// PeerState.Confirmed.
	Confirmed bool
	// Reads says that the peer reads this cluster, and so answers its handovers.
	Reads bool
	// Forgotten says that an administrator removed the peer from the configuration
	// and that nothing of it is to stay.
	Forgotten bool
	Published Published
}

// Unheard reports whether it is not known what the peer publishes of the Service:
// the peer has not been listed, or what is missing may still arrive, or it is in a
// format that this program does not know.
func (p Peer) Unheard() bool {
	return !p.Synced || p.Published.Service == nil && !p.Confirmed || p.Published.Service != nil && !p.Published.Understood()
}

// Health is how sure it is that a peer's publications still hold.
type Health string

// The grades of health.
const (
	Live    Health = "Live"    // its lease was renewed in time
	Stale   Health = "Stale"   // no renewal was seen for half of the lease's duration
	Expired Health = "Expired" // no renewal was seen for the lease's whole duration
)

// Mark returns the value of AnnotationStale for endpoints of a peer of this health.
func (h Health) Mark() string {
	switch h {
	case Stale:
		return v1alpha1.StaleKept
	case Expired:
		return v1alpha1.StaleExpired
	default:
		return ""
	}
}

// PeerState is what is known of a peer as a whole, for all Services.
type PeerState struct {
	// Lease is the newest lease that was read; nil if none was.
	Lease *v1alpha1.ClusterLease
	// Heard is when Lease was last seen to change, by this cluster's own clock. It
	// is remembered over restarts; if nothing is remembered, it is when this process
	// began to read the peer.
	Heard time.Time
	// Duration is how long the lease lasts if Lease is nil.
	Duration time.Duration
	// Synced says that all publications of the peer were listed.
	Synced bool
	// Services counts the PublishedServices of the peer that were seen.
	Services int
	// Forgotten is Peer.Forgotten.
	Forgotten bool
}

// LongestLease bounds the duration of every lease, whatever the lease itself says:
// a peer cannot make its publications stay for good.
const LongestLease = time.Hour

// defaultLease is the duration of a lease that says nothing about it.
const defaultLease = 40 * time.Second

// Health returns how sure the peer's publications are, and when that changes if the
// lease is not renewed; zero: never.
func (p PeerState) Health(now time.Time) (Health, time.Time) {
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

// Confirmed reports whether a publication that was not seen does not exist: the peer
// is alive, says that it has published everything, and as many publications as it
// counts were seen.
func (p PeerState) Confirmed(now time.Time) bool {
	health, _ := p.Health(now)
	return health == Live && p.Synced && p.Lease != nil && p.Lease.Spec.Complete && p.Services >= int(p.Lease.Spec.Services)
}

// Peer returns what is known of the peer for one Service; own is this cluster.
func (p PeerState) Peer(own ID, now time.Time, published Published) Peer {
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

// Overlaps returns the pairs of ranges, one of each side, that share addresses. It
// leaves out strings that are not ranges.
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
