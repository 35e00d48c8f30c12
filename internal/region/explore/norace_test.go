//go:build !race

package explore

const (
	states = 50_000
	ways   = 500
)
