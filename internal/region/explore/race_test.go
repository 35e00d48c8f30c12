//go:build race

package explore

// The explorer has one goroutine at a time; the race detector would only make it slower.
const (
	states = 2_000
	ways   = 20
)
