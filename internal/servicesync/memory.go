package servicesync

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/model"
)

// memory is what is known of a peer's lease, and outlives the reading of it.
type memory struct {
	heard    time.Time // when reading began, as long as no lease was read
	read     bool      // a lease was
	renewed  time.Time // the lease's own renewTime when it was last seen
	duration time.Duration
}

// peering is what a memory alone says of a peer.
func (m memory) peering() model.Peering {
	return model.Peering{Heard: m.heard, Duration: m.duration}
}

// recall is what a lease's status remembers of a peer, for a process that
// begins to read it now. An absence of this process is no silence of the
// peer's: one that was not given up is given time to be heard.
func recall(s v1alpha1.PeerStatus, began time.Time) memory {
	switch {
	case s.Heard == nil && s.State == string(model.Expired):
		return memory{}
	case s.Heard == nil:
		return memory{heard: began}
	}
	m := memory{heard: s.Heard.Time, read: true, duration: time.Duration(s.DurationSeconds) * time.Second}
	if s.State == string(model.Expired) {
		return m
	}
	if grace := began.Add(-m.duration / 8); m.heard.Before(grace) {
		m.heard = grace // stale after 3/8 of the lease, which is more than one renewal
	}
	return m
}

// unknown is what people are told of a peer that was not reached yet: it is only
// taken for alive, for a while.
const unknown = "Unknown"

// state is what people are told of a peer.
func (m memory) state(health model.Health) string {
	if !m.read && health != model.Expired {
		return unknown
	}
	return string(health)
}

// statusOf is what recall makes a memory of.
func statusOf(id model.ClusterID, m memory, health model.Health) v1alpha1.PeerStatus {
	status := v1alpha1.PeerStatus{Cluster: string(id), State: m.state(health), DurationSeconds: int32(m.duration.Seconds())}
	if m.read {
		status.Heard = &metav1.MicroTime{Time: m.heard.Truncate(time.Microsecond)}
	}
	return status
}
