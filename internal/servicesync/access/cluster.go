package access

import (
	"k8s.io/client-go/rest"
)

// Cluster says how to reach a cluster that a process works for.
type Cluster struct {
	Name   string
	Config *rest.Config
	// PodRanges are its pods' addresses, as CIDRs; empty: they are read from its nodes.
	PodRanges []string
}
