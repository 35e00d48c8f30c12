//go:build !race

package explore

const (
	states = 100_000
	ways   = 2000
)
