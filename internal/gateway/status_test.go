package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance"
	"github.com/xbernetes/xbernetes/internal/gateway/discovery"
	"github.com/xbernetes/xbernetes/internal/gateway/discovery/ownership"
	"github.com/xbernetes/xbernetes/internal/gateway/endpoints"
	"github.com/xbernetes/xbernetes/internal/gateway/source"
)

// TestStatus is what people read of a server, in each state that it can be in.
// A story's statuses follow each other, a minute apart.
func TestStatus(t *testing.T) {
	datadriven.Walk(t, "testdata/status", func(t *testing.T, path string) {
		var last v1alpha1.RemoteAPIServerStatus
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd != "status" {
				d.Fatalf(t, "no such command: %s", d.Cmd)
			}
			o := observation{server: &v1alpha1.RemoteAPIServer{ObjectMeta: metav1.ObjectMeta{Name: "s", Generation: 3}}, now: now}
			for _, a := range d.CmdArgs {
				switch a.Key {
				case "groups":
					o.server.Spec.Groups = a.Vals
				case "invalid":
					o.found.tried, o.found.invalid = true, errors.New(d.Input)
				case "offers":
					o.found.tried, o.found.document = true, &discovery.Document{Version: []byte(`{"gitVersion":"v1.37.1"}`)}
					for _, g := range a.Vals {
						o.found.document.Groups = append(o.found.document.Groups, apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g}})
						o.groupVersions = append(o.groupVersions, g+"/v1")
					}
				case "failed":
					o.found.tried, o.found.err = true, errors.New(d.Input)
				case "well":
					o.health = endpoints.Health{Available: true, Checked: true, Endpoints: []endpoints.EndpointHealth{{URL: "https://x", State: endpoints.Healthy}}}
				case "down":
					o.health = endpoints.Health{Checked: true, LastError: "cannot be reached at x: connection refused",
						Endpoints: []endpoints.EndpointHealth{{URL: "https://x", State: endpoints.Down, LastError: "connection refused"}}}
				case "latency":
					o.health.Latency, _ = time.ParseDuration(a.Vals[0])
				case "refused":
					for _, g := range a.Vals {
						o.refused = append(o.refused, ownership.Refusal{Group: g, Server: "other"})
					}
				case "holds":
					o.held = a.Vals
				case "withheld":
					o.withheld = true
				case "checked":
					report := &conformance.Report{Results: []conformance.Result{{ID: "list.kind", Outcome: conformance.Outcome(a.Vals[0])}}}
					o.found.checked = &checked{report: report}
				case "unchecked":
					o.found.checked = &checked{err: errors.New(d.Input)}
				default:
					d.Fatalf(t, "no such argument: %s", a.Key)
				}
			}
			last = statusOf(o, last)
			now = now.Add(time.Minute)
			return told(last)
		})
	})
}

func told(s v1alpha1.RemoteAPIServerStatus) string {
	var out strings.Builder
	for _, c := range s.Conditions {
		fmt.Fprintf(&out, "%s %s since %s: %s\n  %s\n", c.Type, c.Status, c.LastTransitionTime.UTC().Format("15:04"), c.Reason, c.Message)
	}
	fmt.Fprintf(&out, "version %q, serves %q", s.Version, s.GroupVersions)
	if s.Latency != nil {
		fmt.Fprintf(&out, ", latency %v", s.Latency.Duration)
	}
	for _, e := range s.Endpoints {
		fmt.Fprintf(&out, ", %s healthy: %v %s", e.URL, e.Healthy, e.Message)
	}
	return out.String() + "\n"
}

// TestWhoHeldWhatOutlivesStarts: what a status says of a server that was not
// reached since the gateway's start is enough for its next start.
func TestWhoHeldWhatOutlivesStarts(t *testing.T) {
	s := &v1alpha1.RemoteAPIServer{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
	s.Spec.Groups = []string{"*", ""}
	s.Status.GroupVersions = []string{"one.example.com/v1", "v1"}
	s.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAvailable}}
	before := source.Held([]*v1alpha1.RemoteAPIServer{s})
	for range 3 {
		r := newRegistry(slog.New(slog.DiscardHandler), discovery.NewIndex(), nil)
		r.ready.Store(true)
		r.index.Remember(source.Held([]*v1alpha1.RemoteAPIServer{s}))
		m := newMember(s, func() {})
		m.found = found{tried: true, err: errors.New("connection refused")}
		r.members["s"] = m
		r.publish()
		s = s.DeepCopy()
		s.Status = r.table.Load().servers["s"].status
	}
	if diff := cmp.Diff(before, source.Held([]*v1alpha1.RemoteAPIServer{s})); diff != "" {
		t.Errorf("who holds what, after three starts (-before +after):\n%s", diff)
	}
}

func TestClip(t *testing.T) {
	long := clip(strings.Repeat("ü", 1000))
	if len(long) > 1024 || !strings.HasSuffix(long, "…") || strings.ContainsRune(long, '\uFFFD') {
		t.Errorf("%d bytes: %q", len(long), long[len(long)-10:])
	}
}
