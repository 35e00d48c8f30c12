// Package facade serves all regions at one address, with the rights of whoever calls. It has
// no credentials, stores nothing, and never decides what a caller may do.
package facade
