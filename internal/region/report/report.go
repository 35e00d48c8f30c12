// Package report prints what clients find out of regions, for people. It asks no region.
package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/xbernetes/xbernetes/api/region/client"
)

// Names are names and where they are.
type Names []client.Owned

// WriteText writes a line for each name.
func (n Names) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "NAME\tREGION\tSTATE\tSPEC")
	for _, x := range n {
		state := "Ready"
		if x.Deleting {
			state = "Deleting"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", x.Name, x.Region, state, spec(x))
	}
	return t.Flush()
}

// Name is one name.
type Name struct{ client.Owned }

// WriteText writes what Names writes.
func (n Name) WriteText(w io.Writer) error { return Names{n.Owned}.WriteText(w) }

// spec is what a name stands for, on one line.
func spec(x client.Owned) string {
	switch account, cluster := x.Spec.Account, x.Spec.ServiceCluster; {
	case x.Problem != "":
		return x.Problem
	case account != nil:
		words := []string{}
		for _, role := range account.Roles {
			words = append(words, string(role))
		}
		for _, s := range account.Subjects {
			name := s.Name
			if s.Namespace != "" {
				name = s.Namespace + "/" + s.Name
			}
			words = append(words, fmt.Sprintf("%s:%q", s.Kind, name))
		}
		return strings.Join(words, " ")
	case cluster != nil && cluster.KubeconfigSecret != nil:
		return "Secret:" + cluster.KubeconfigSecret.Namespace + "/" + cluster.KubeconfigSecret.Name
	}
	return ""
}

// Change is what a create or delete has done.
type Change struct {
	client.Owned
	Done   string `json:"done"`   // created or deleted
	DryRun bool   `json:"dryRun"` // nothing was done
}

// WriteText writes one line.
func (c Change) WriteText(w io.Writer) error {
	would := ""
	if c.DryRun {
		would = " (dry run)"
	}
	_, err := fmt.Fprintf(w, "%s %s %s%s\n", c.Kind, c.Name, c.Done, would)
	return err
}

// Members are the regions.
type Members []client.Member

// WriteText writes a line for each region.
func (m Members) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "REGION\tSTATE\tSINCE\tPROBLEM")
	for _, x := range m {
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\n", x.Region, x.State, x.Since, x.Problem)
	}
	return t.Flush()
}

// Status is how the regions stand.
type Status client.Status

// WriteText writes a line for each region, and one for each operation that has not ended.
func (s Status) WriteText(w io.Writer) error {
	if err := Members(s.Members).WriteText(w); err != nil || len(s.Unfinished) == 0 {
		return err
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "OPERATION\tVERB\tKIND\tNAME\tSTATE\tREGION\tSINCE\tWHO CAN END IT")
	for _, u := range s.Unfinished {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", u.Operation, u.Verb, u.Kind, u.Name, u.State, u.Region, u.Since.UTC().Format(time.RFC3339), u.Next)
	}
	return t.Flush()
}
