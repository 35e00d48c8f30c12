// Package servicesync keeps the Services that clusters share alike: it reads
// the own cluster and what its peers publish, has package model decide, and
// writes what that says to the own cluster and to its publications. It never
// writes to a peer, and decides nothing about a Service itself.
package servicesync
