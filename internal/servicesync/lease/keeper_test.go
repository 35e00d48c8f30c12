package lease

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
)

// News are written; that a peer lives is, once a renewal.
func TestNews(t *testing.T) {
	at := func(s int64) *metav1.MicroTime { return &metav1.MicroTime{Time: time.Unix(s, 0)} }
	before := v1alpha1.ClusterLeaseStatus{Peers: []v1alpha1.PeerStatus{{Cluster: "b", State: "Live", Heard: at(100)}}}
	for name, test := range map[string]struct {
		now  v1alpha1.PeerStatus
		want bool
	}{
		"the same":      {v1alpha1.PeerStatus{Cluster: "b", State: "Live", Heard: at(100)}, false},
		"heard just":    {v1alpha1.PeerStatus{Cluster: "b", State: "Live", Heard: at(105)}, false},
		"heard again":   {v1alpha1.PeerStatus{Cluster: "b", State: "Live", Heard: at(110)}, true},
		"stale":         {v1alpha1.PeerStatus{Cluster: "b", State: "Stale", Heard: at(100)}, true},
		"has a message": {v1alpha1.PeerStatus{Cluster: "b", State: "Live", Heard: at(100), Message: "x"}, true},
	} {
		if got := news(before, v1alpha1.ClusterLeaseStatus{Peers: []v1alpha1.PeerStatus{test.now}}, 10*time.Second); got != test.want {
			t.Errorf("%s: %v; want %v", name, got, test.want)
		}
	}
}
