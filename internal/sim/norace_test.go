//go:build !race

package sim

const seeds = 2000
