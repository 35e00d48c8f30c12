// Package servicesync is a cluster's controller: it reads the cluster and the publications
// of its peers, calls package model to decide about each Service, and writes the result to
// the cluster and to the cluster's own publications. It never writes to a peer, and decides
// nothing itself.
//
// Two things are leases in Kubernetes. Here "lease" is the cluster's ClusterLease, its sign
// of life for peers; the lock by which processes elect a leader is the leader lock.
package servicesync
