//go:build race

package filelog

const crashRunsUsual = 3 // one thread: there is no race to find
