package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// Print prints tables for people: of clusters and their peers, and of Services. Ages are
// those at now.
func (r *Report) Print(out io.Writer, now time.Time) error {
	if err := printClusters(out, r.Clusters, now); err != nil {
		return err
	}
	for _, c := range r.Clusters {
		for _, fault := range faultsOf(c) {
			fmt.Fprintf(out, "! %s: %s\n", c.Cluster, fault)
		}
	}
	if len(r.Services) == 0 {
		fmt.Fprintln(out, "\nNo such Services.")
		return nil
	}
	fmt.Fprintln(out)
	return printServices(out, r.Services)
}

// printClusters prints a line for each peer of each cluster.
func printClusters(out io.Writer, clusters []Cluster, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "CLUSTER\tRENEWED\tSERVICES\tPEER\tSTATE\tHEARD")
	for _, c := range clusters {
		published := fmt.Sprint(c.Services)
		if !c.Complete {
			published += " so far"
		}
		row := c.Cluster + "\t" + ago(c.Renewed, now) + "\t" + published
		if len(c.Peers) == 0 {
			fmt.Fprintln(w, row+"\tnone\t\t")
		}
		for _, p := range c.Peers {
			var heard *time.Time
			if p.Heard != nil {
				heard = &p.Heard.Time
			}
			state := cmp.Or(string(p.State), "Unusable")
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", row, p.Cluster, state, ago(heard, now))
			row = "\t\t" // the cluster is named in its first line only
		}
	}
	return w.Flush()
}

// faultsOf are a cluster's own faults, and then those of its peers.
func faultsOf(c Cluster) []string {
	faults := slices.Clone(c.Faults)
	for _, p := range c.Peers {
		if p.Message != "" {
			faults = append(faults, p.Message)
		}
	}
	return faults
}

// ago says how long before now t was; nil is never.
func ago(t *time.Time, now time.Time) string {
	switch {
	case t == nil:
		return "never"
	case t.After(now):
		return "now"
	}
	return duration.HumanDuration(now.Sub(*t)) + " ago"
}

func printServices(out io.Writer, services []Service) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "SERVICE\tCLUSTER\tROLE\tREADY IN USE\tNOTE")
	last := ""
	for _, s := range services {
		name := s.Service
		if name == last {
			name = ""
		}
		last = s.Service
		role := string(s.Role)
		if s.Phase != "" {
			role += " (" + string(s.Phase) + ")"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", name, s.Cluster, role, inUse(s), strings.Join(s.Notes, "; "))
	}
	return w.Flush()
}

// inUse is the ready endpoints of each cluster, its own first.
func inUse(s Service) string {
	var parts []string
	for cluster, n := range s.Ready {
		mark := ""
		if slices.Contains(s.Stale, cluster) {
			mark = " stale"
		}
		parts = append(parts, fmt.Sprintf("%s %d%s", cluster, n, mark))
	}
	slices.SortFunc(parts, func(a, b string) int {
		own := s.Cluster + " "
		if x, y := strings.HasPrefix(a, own), strings.HasPrefix(b, own); x != y {
			if x {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
