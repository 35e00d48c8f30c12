package model

import (
	"maps"
	"slices"
	"strings"
	"time"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
)

// plan orders the writes. Slices with more ready endpoints are written before the
// Service changes, and those with fewer afterwards; what the cluster publishes of
// itself comes last, for it says what is true.
func (d *decision) plan() Result {
	if d.inScope {
		grow, shrink := []Write(nil), []Write(nil)
		if !d.drop && (d.svc != nil || d.service == nil) { // all go with a Service that is gone
			grow, shrink = compareSlices(d.have, d.bundle(d.slices))
		}
		d.writes = append(d.writes, grow...)
		d.planService()
		d.writes = append(d.writes, shrink...)
		left := d.leftOvers()
		if len(left) > 0 {
			// Nothing changes, but it fails if the selector came back unseen: then
			// they are not left behind at all.
			d.writes = append(d.writes, Write{Update, Own, d.svc, d.svc, "make sure that the selector is still away"})
		}
		for _, o := range left {
			d.writes = append(d.writes, Write{Delete, Own, o, nil, "Kubernetes left it behind when the selector was taken away"})
		}
		d.planEndpoints()
		d.share()
	}
	d.planPublication()
	d.result.Writes = d.writes
	f := &d.result.Facts
	f.Role, f.Mode, f.Asked = d.me.Role, d.me.Mode, d.me.Asked
	if underWay(d.handover) {
		f.Phase = d.handover.Phase
	}
	f.Ready = map[ClusterID]int{d.cfg.Cluster: d.ready}
	for _, s := range d.slices {
		f.Ready[ClusterID(s.Labels[v1alpha1.LabelCluster])] += readyIn(s)
	}
	return d.result
}

// again asks for another decision at a time.
func (d *decision) again(at time.Time) {
	if d.result.Again.IsZero() || at.Before(d.result.Again) {
		d.result.Again = at
	}
}

func sortedPeers(peers map[ClusterID]Peer) []ClusterID { return slices.Sorted(maps.Keys(peers)) }

func names(ids []ClusterID) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = string(id)
	}
	slices.Sort(out)
	return out
}

func join(names []string) string { return strings.Join(names, ", ") }
