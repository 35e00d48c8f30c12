package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/report"
)

func TestNamesIn(t *testing.T) {
	for list, want := range map[string][]string{
		"":                 nil,
		"a":                {"a"},
		"a,b":              {"a", "b"},
		` ["a", "b"] `:     {"a", "b"},
		"a b\n,c":          {"a", "b", "c"},
		"['kube-system' ]": {"kube-system"},
	} {
		if got := namesIn(list); !slices.Equal(got, want) {
			t.Errorf("%q has %q; want %q", list, got, want)
		}
	}
}

func TestServiceNames(t *testing.T) {
	if got, err := serviceNames([]string{"shop/web"}); err != nil || got[0].String() != "shop/web" {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"web", "/web", "shop/", "a/b/c", ""} {
		if _, err := serviceNames([]string{bad}); err == nil || !strings.Contains(err.Error(), "want NAMESPACE/NAME") {
			t.Errorf("%q is said to be %v", bad, err)
		}
	}
}

func TestPrintReport(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	renewed := now.Add(-3 * time.Second)
	found := &report.Report{
		Clusters: []report.Cluster{
			{Cluster: "east", Renewed: &renewed, Complete: true, Services: 2, Peers: []v1alpha1.PeerStatus{
				{Cluster: "north", Message: "/etc/kubeconfigs/north: is no kubeconfig: it names no cluster"},
				{Cluster: "west", State: "Live", Heard: &metav1.MicroTime{Time: now.Add(-5 * time.Second)}},
			}},
			{Cluster: "west", Services: 1, Faults: []string{"pod ranges overlap: 10.0.0.0/16 here and 10.0.0.0/8 of east"}},
		},
		Services: []report.Service{
			{Service: "shop/pay", Cluster: "east", Role: "receiver", Ready: map[string]int{"west": 2, "south": 1}, Stale: []string{"south"}},
			{Service: "shop/web", Cluster: "east", Role: "source", Phase: "Preparing", Ready: map[string]int{"west": 1, "east": 3}, Notes: []string{"waits for endpoints of west: 1 of 3 are ready"}},
			{Service: "shop/web", Cluster: "west", Role: "candidate", Ready: map[string]int{}},
		},
	}
	var out strings.Builder
	if err := printReport(&out, found, now); err != nil {
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

// Metrics are for this machine, and for whoever has the token.
func TestMetricsAskForToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		file, from, path, auth string
		code                   int
	}{
		{"", "127.0.0.1:5000", "/metrics", "", 200},
		{"", "[::1]:5000", "/metrics", "", 200},
		{"", "10.0.0.7:5000", "/metrics", "", 401},
		{"", "10.0.0.7:5000", "/metrics", "Bearer ", 401},
		{"", "10.0.0.7:5000", "/healthz", "", 200},
		{file, "10.0.0.7:5000", "/metrics", "", 401},
		{file, "10.0.0.7:5000", "/metrics", "Bearer wrong", 401},
		{file, "10.0.0.7:5000", "/metrics", "Basic secret", 401},
		{file, "10.0.0.7:5000", "/metrics", "Bearer secret", 200},
		{file + "-none", "10.0.0.7:5000", "/metrics", "Bearer ", 401},
		{os.DevNull, "10.0.0.7:5000", "/metrics", "Bearer ", 401},
	} {
		f := &metricsFlags{token: c.file}
		r := httptest.NewRequest(http.MethodGet, c.path, nil)
		r.RemoteAddr = c.from
		if c.auth != "" {
			r.Header.Set("Authorization", c.auth)
		}
		w := httptest.NewRecorder()
		f.metricsHandler(prometheus.NewRegistry()).ServeHTTP(w, r)
		if w.Code != c.code {
			t.Errorf("%+v gets %d", c, w.Code)
		}
	}
}
