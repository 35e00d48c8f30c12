// Package measure is what all suites share: what a run is told, load, processes, distance
// and the report. It never knows what is measured.
package measure

// Config is what a run is told.
type Config struct {
	XB       string  // the xb binary
	Bin      string  // the folder with the programs that xb is measured beside
	Dir      string  // where data goes
	Original string  // a build of the k8s-endpoints-sync-controller, or ""
	Rounds   int     // how often each system has its turn
	Scale    float64 // multiplies the number of operations
	Clients  int     // of the Kubernetes API
}
