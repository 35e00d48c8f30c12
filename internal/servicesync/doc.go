// Package servicesync works for a cluster: it reads the cluster and what its peers publish,
// has package model decide about each Service, and writes what was decided to the cluster
// and to its publications. It never writes to a peer, and decides nothing itself.
package servicesync
