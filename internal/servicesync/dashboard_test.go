package servicesync

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func manifest(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "deploy", "servicesync", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Dashboard and alerts speak of metrics that there are.
func TestDashboard(t *testing.T) {
	known := newMetricNames(t)
	if !json.Valid(manifest(t, "dashboard.json")) {
		t.Error("dashboard.json is no JSON")
	}
	shown := map[string]bool{}
	for _, file := range []string{"dashboard.json", "alerts.yaml"} {
		for _, name := range regexp.MustCompile(`xb_servicesync_[a-z_]+`).FindAllString(string(manifest(t, file)), -1) {
			name = strings.TrimSuffix(name, "_bucket")
			if shown[name] = true; !known[name] {
				t.Errorf("%s asks for %s, which is not measured", file, name)
			}
		}
	}
	for name := range known {
		if !shown[name] {
			t.Errorf("%s is measured, and on no dashboard", name)
		}
	}
}

func newMetricNames(t *testing.T) map[string]bool {
	collected := &collector{}
	newMetrics(collected)
	names := map[string]bool{}
	for _, c := range collected.all {
		descs := make(chan *prometheus.Desc, 10)
		c.Describe(descs)
		close(descs)
		for d := range descs {
			names[regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(d.String())[1]] = true
		}
	}
	if len(names) < 10 {
		t.Fatalf("there are %d metrics only", len(names))
	}
	return names
}

type collector struct {
	prometheus.Registerer
	all []prometheus.Collector
}

func (c *collector) MustRegister(all ...prometheus.Collector) { c.all = append(c.all, all...) }
