package servicesync

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/model"
)

// A restart is no silence of the peer's; one that was given up stays so.
func TestRecall(t *testing.T) {
	began := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	lease := 40 * time.Second
	for _, test := range []struct {
		name  string
		heard time.Duration // before began
		state model.Health
		after time.Duration // of reading
		want  model.Health
	}{
		{"heard just now", time.Second, model.Live, 0, model.Live},
		{"long away", time.Hour, model.Live, 0, model.Live},
		{"long away, and silent for more than a renewal", time.Hour, model.Live, 16 * time.Second, model.Stale},
		{"long away, and silent", time.Hour, model.Live, 36 * time.Second, model.Expired},
		{"given up", time.Hour, model.Expired, 0, model.Expired},
	} {
		m := recall(v1alpha1.PeerStatus{
			Cluster: "b", Heard: &metav1.MicroTime{Time: began.Add(-test.heard)}, DurationSeconds: int32(lease.Seconds()), State: string(test.state),
		}, began)
		got, _ := model.Peering{Heard: m.heard, Duration: m.duration}.Health(began.Add(test.after))
		if got != test.want {
			t.Errorf("%s: %s; want %s", test.name, got, test.want)
		}
	}
	// What was never reached is no sooner given up, and no later, by a restart.
	for state, want := range map[string]model.Health{unknown: model.Live, string(model.Expired): model.Expired} {
		m := recall(v1alpha1.PeerStatus{Cluster: "b", State: state}, began)
		got, _ := m.peering().Health(began)
		if said := statusOf("b", m, got); got != want || said.State != state || said.Heard != nil {
			t.Errorf("never reached and %s, it is %s and said to be %+v; want %s", state, got, said, want)
		}
	}
}

// A peer speaks for itself only, whatever its objects say.
func TestPeerSpeaksForItself(t *testing.T) {
	b := &peer{id: "b"}
	web := v1alpha1.ServiceReference{Namespace: "shop", Name: "web"}
	if got := b.trusted("c", web); got != nil {
		t.Errorf("b is believed to speak for c about %v", got)
	}
	if got := b.trusted("b", web); len(got) != 1 || got[0] != keyOf("shop", "web") {
		t.Errorf("b is not believed: %v", got)
	}
}
