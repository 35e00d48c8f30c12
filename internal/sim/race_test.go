//go:build race

package sim

const seeds = 100
