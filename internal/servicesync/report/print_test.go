package report

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
)

func TestPrint(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	renewed := now.Add(-3 * time.Second)
	found := &Report{
		Clusters: []Cluster{
			{Cluster: "east", Renewed: &renewed, Complete: true, Services: 2, Peers: []v1alpha1.PeerStatus{
				{Cluster: "north", Message: "/etc/kubeconfigs/north: is no kubeconfig: it names no cluster"},
				{Cluster: "west", State: "Live", Heard: &metav1.MicroTime{Time: now.Add(-5 * time.Second)}},
			}},
			{Cluster: "west", Services: 1, Faults: []string{"pod ranges overlap: 10.0.0.0/16 here and 10.0.0.0/8 of east"}},
		},
		Services: []Service{
			{Service: "shop/pay", Cluster: "east", Role: "receiver", Ready: map[string]int{"west": 2, "south": 1}, Stale: []string{"south"}},
			{Service: "shop/web", Cluster: "east", Role: "source", Phase: "Preparing", Ready: map[string]int{"west": 1, "east": 3}, Notes: []string{"waits for endpoints of west: 1 of 3 are ready"}},
			{Service: "shop/web", Cluster: "west", Role: "candidate", Ready: map[string]int{}},
		},
	}
	var out strings.Builder
	if err := found.Print(&out, now); err != nil {
		t.Fatal(err)
	}
	// Where a line ends is not what this is about.
	got := regexp.MustCompile(` +\n`).ReplaceAllString(out.String(), "\n")
	want := `CLUSTER  RENEWED  SERVICES  PEER   STATE     HEARD
east     3s ago   2         north  Unusable  never
                            west   Live      5s ago
west     never    1 so far  none
! east: /etc/kubeconfigs/north: is no kubeconfig: it names no cluster
! west: pod ranges overlap: 10.0.0.0/16 here and 10.0.0.0/8 of east

SERVICE   CLUSTER  ROLE                READY IN USE           NOTE
shop/pay  east     receiver            south 1 stale, west 2
shop/web  east     source (Preparing)  east 3, west 1         waits for endpoints of west: 1 of 3 are ready
          west     candidate           none
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
