// Package objects serves accounts, service clusters and assignments as objects of Kubernetes,
// over all regions, with the rights of whoever calls. It stores nothing, and forwards nothing.
package objects
