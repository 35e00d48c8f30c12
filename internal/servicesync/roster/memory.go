package roster

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
)

// memory is what is known of a peer's lease. It is kept when the peer is no longer read.
type memory struct {
	heard    time.Time // the last sign of life; until one is seen, when reading began
	read     bool      // a lease was read
	renewed  time.Time // the lease's own renewTime when it was last seen
	duration time.Duration
}

// peerState returns what the model can know of a peer from the memory alone.
func (m memory) peerState() clusterset.PeerState {
	return clusterset.PeerState{Heard: m.heard, Duration: m.duration}
}

// recall makes a memory from the status that an earlier process wrote about a peer, for a
// process that begins to read at began. While no process ran, the peer may have been alive
// without being heard, so a peer that was not expired gets some time to be heard.
func recall(s v1alpha1.PeerStatus, began time.Time) memory {
	switch {
	case s.Heard == nil && s.State == string(clusterset.Expired):
		return memory{}
	case s.Heard == nil:
		return memory{heard: began}
	}
	m := memory{heard: s.Heard.Time, read: true, duration: time.Duration(s.DurationSeconds) * time.Second}
	if s.State == string(clusterset.Expired) {
		return m
	}
	if grace := began.Add(-m.duration / 8); m.heard.Before(grace) {
		m.heard = grace // the peer is stale 3/8 of the lease after began: more than one renewal
	}
	return m
}

// unknown is the state that people see for a peer that was never reached, and that is
// assumed to be alive for a while.
const unknown = "Unknown"

// state returns a peer's state in the word that people see.
func (m memory) state(health clusterset.Health) string {
	if !m.read && health != clusterset.Expired {
		return unknown
	}
	return string(health)
}

// statusOf returns a memory as a status, which recall reads back.
func statusOf(id clusterset.ID, m memory, health clusterset.Health) v1alpha1.PeerStatus {
	status := v1alpha1.PeerStatus{Cluster: string(id), State: m.state(health), DurationSeconds: int32(m.duration.Seconds())}
	if m.read {
		status.Heard = &metav1.MicroTime{Time: m.heard.Truncate(time.Microsecond)}
	}
	return status
}
