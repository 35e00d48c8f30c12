//go:build !race

package filelog

const crashRunsUsual = 18
