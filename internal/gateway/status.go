package gateway

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/discovery/ownership"
	"github.com/xbernetes/xbernetes/internal/gateway/endpoints"
)

// observation is all that a server's status is made from.
type observation struct {
	server        *v1alpha1.RemoteAPIServer
	found         found
	health        endpoints.Health
	refused       []ownership.Refusal
	groupVersions []string // the group versions that discovery shows as the server's
	held          []string // the groups that it holds
	withheld      bool     // see entry
	now           time.Time
}

func (r *registry) observe(m *member, owned ownership.Assignment, withheld bool) observation {
	o := observation{
		server: m.server, found: m.known(), refused: owned.Refused[m.server.Name], held: owned.Of(m.server.Name),
		withheld: withheld, groupVersions: r.index.GroupVersions()[m.server.Name], now: r.now(),
	}
	if conn := m.conn.Load(); conn != nil {
		o.health = conn.backend.Health()
	}
	return o
}

// statusOf returns a server's status. last is its previous status: a condition that has not
// changed keeps its time, and a latency that has hardly changed stays.
func statusOf(o observation, last v1alpha1.RemoteAPIServerStatus) v1alpha1.RemoteAPIServerStatus {
	s := v1alpha1.RemoteAPIServerStatus{
		ObservedGeneration: o.server.Generation,
		Conditions:         slices.Clone(last.Conditions),
		GroupVersions:      groupVersions(o, last.GroupVersions),
		Version:            last.Version,
		Latency:            latency(o.health.Latency, last.Latency),
	}
	if d := o.found.document; d != nil && d.Version != nil {
		var v struct {
			GitVersion string `json:"gitVersion"`
		}
		if json.Unmarshal(d.Version, &v) == nil {
			s.Version = fmt.Sprintf("%.64s", v.GitVersion)
		}
	}
	for _, e := range o.health.Endpoints {
		s.Endpoints = append(s.Endpoints, v1alpha1.EndpointStatus{URL: e.URL, Healthy: e.State == endpoints.Healthy, Message: clip(e.LastError)})
	}
	for _, c := range []metav1.Condition{available(o), unique(o), conformant(o)} {
		c.ObservedGeneration = o.server.Generation
		c.LastTransitionTime = metav1.NewTime(o.now.Truncate(time.Second))
		meta.SetStatusCondition(&s.Conditions, c)
	}
	return s
}

// groupVersions returns the group versions whose requests the server gets. While discovery
// shows nothing of the server, it returns those of last in groups that the server still
// holds: a starting gateway learns from them which server held which group.
func groupVersions(o observation, last []string) []string {
	if o.found.document != nil && !o.withheld {
		return o.groupVersions
	}
	return slices.DeleteFunc(slices.Clone(last), func(text string) bool {
		gv, err := schema.ParseGroupVersion(text)
		return err != nil || !slices.Contains(o.held, gv.Group)
	})
}

func available(o observation) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionFalse}
	switch {
	case o.found.invalid != nil:
		c.Reason, c.Message = "Invalid", clip(o.found.invalid.Error())
	case !o.found.tried, o.found.document == nil && o.found.err == nil:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, "NotAsked", "The server has not been asked yet."
	case !o.health.Available:
		c.Reason, c.Message = "Unreachable", clip(cmp.Or(o.health.LastError, "no endpoint answers")+
			". What is known of its groups stays in discovery; requests get 503 until an endpoint answers.")
	case o.found.err != nil:
		c.Reason, c.Message = "DiscoveryFailed", clip(o.found.err.Error())
	case o.withheld:
		c.Reason, c.Message = "NotAdmitted", "The server answers, but this gateway takes conformant servers only (--require-conformant); see the condition Conformant. "+
			"What it held stays with it; requests get 503."
	case len(ownership.Missing(o.server.Spec.Groups, o.found.document.Offered())) > 0:
		c.Status, c.Reason = metav1.ConditionTrue, "GroupsMissing"
		c.Message = clip(fmt.Sprintf("The server answers, but does not serve what spec.groups names: %s.",
			titles(ownership.Missing(o.server.Spec.Groups, o.found.document.Offered()))))
	case len(unnamed(o)) > 0:
		c.Status, c.Reason = metav1.ConditionTrue, "GroupsUnnamed"
		c.Message = clip(fmt.Sprintf("The server answers. It serves groups that are not sent to it, because its spec.groups does not name them "+
			"(\"*\" names no reserved ones): %s.", titles(unnamed(o))))
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "Answering", "The server answers."
	}
	return c
}

// unnamed returns the groups that the server serves and its spec does not name. If the spec
// names groups without "*", it leaves the others out on purpose, and unnamed returns none.
func unnamed(o observation) []string {
	named := o.server.Spec.Groups
	if len(named) > 0 && !slices.Contains(named, ownership.AnyGroup) {
		return nil
	}
	return slices.DeleteFunc(o.found.document.Offered(), func(g string) bool { return ownership.Names(named, g) })
}

func unique(o observation) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionGroupsUnique, Status: metav1.ConditionTrue, Reason: "NoConflict", Message: "No other server holds a group that this one claims."}
	if len(o.refused) == 0 {
		return c
	}
	var parts []string
	for _, r := range o.refused {
		how := "held by"
		if r.Named {
			how = "named for"
		}
		parts = append(parts, fmt.Sprintf("%s is %s server %q", ownership.Title(r.Group), how, r.Server))
	}
	c.Status, c.Reason = metav1.ConditionFalse, "HeldByOthers"
	c.Message = clip(fmt.Sprintf("%s. No request for it comes here. Name in spec.groups what this server is for, or take it from the other.", strings.Join(parts, ", ")))
	return c
}

func titles(groups []string) string {
	out := make([]string, len(groups))
	for i, g := range groups {
		out[i] = ownership.Title(g)
	}
	return strings.Join(out, ", ")
}

// latency returns now to two digits, or last if the two are within a factor of 1.5.
func latency(now time.Duration, last *metav1.Duration) *metav1.Duration {
	if now <= 0 {
		return last
	}
	if last != nil && now < last.Duration*3/2 && now > last.Duration*2/3 {
		return last
	}
	step := time.Microsecond
	for now/step >= 100 {
		step *= 10
	}
	return &metav1.Duration{Duration: max(now.Round(step), time.Microsecond)}
}

// clip shortens a message to what a condition can hold.
func clip(s string) string {
	const most = 1024
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most-len("…")], "") + "…"
}
