package source

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
)

const (
	// wordingTime is the least time between two writes of a status that differ in
	// their wording only.
	wordingTime = 10 * time.Second
	// latencyTime is the least time between two writes of a status that differ in
	// their latency only.
	latencyTime = time.Minute
)

// newsworthy says whether a status is to be written over another. If several gateways watch
// one API, each writes its findings there. Differences of wording and latency are written
// seldom, so that the gateways do not overwrite each other all the time.
func newsworthy(status, over v1alpha1.RemoteAPIServerStatus, sinceLast time.Duration) bool {
	if status.ObservedGeneration < over.ObservedGeneration {
		return false // the status is about an older spec
	}
	if !equality.Semantic.DeepEqual(essence(status), essence(over)) {
		return true
	}
	if sinceLast > wordingTime && !equality.Semantic.DeepEqual(wording(status), wording(over)) {
		return true
	}
	return sinceLast > latencyTime && farApart(status.Latency, over.Latency)
}

// essence returns a status without its wording and its latency.
func essence(s v1alpha1.RemoteAPIServerStatus) v1alpha1.RemoteAPIServerStatus {
	s.Latency = nil
	s.Conditions = slices.Clone(s.Conditions)
	for i := range s.Conditions {
		s.Conditions[i].Message, s.Conditions[i].LastTransitionTime = "", metav1.Time{}
	}
	slices.SortFunc(s.Conditions, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
	s.Endpoints = slices.Clone(s.Endpoints)
	for i := range s.Endpoints {
		s.Endpoints[i].Message = ""
	}
	return s
}

func wording(s v1alpha1.RemoteAPIServerStatus) map[string]string {
	out := map[string]string{}
	for _, c := range s.Conditions {
		out[c.Type] = c.Message
	}
	for _, e := range s.Endpoints {
		out[e.URL] = e.Message
	}
	return out
}

func farApart(a, b *metav1.Duration) bool {
	if a == nil || b == nil {
		return a != b
	}
	return a.Duration > 2*b.Duration || b.Duration > 2*a.Duration
}

// Held returns the holder of each group, as the servers' statuses name it.
func Held(servers []*v1alpha1.RemoteAPIServer) map[string]string {
	held := map[string]string{}
	for _, s := range servers {
		if meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionAvailable) == nil {
			continue
		}
		for _, gv := range s.Status.GroupVersions {
			group, _, found := strings.Cut(gv, "/")
			if !found {
				group = "" // the core group's have a version only
			}
			held[group] = s.Name
		}
	}
	return held
}
