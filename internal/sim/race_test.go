//go:build race

package sim

const seeds = 10 // one thread: there is no race to find
