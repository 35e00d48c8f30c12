// Package stores runs the histories of package sim on real stores, in real time. It
// holds tests only.
package stores
