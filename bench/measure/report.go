package measure

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Sample is one round of one workload on one system.
type Sample struct {
	PerSecond  float64       // operations answered a second
	P50, P99   time.Duration // latency of one operation
	CPUPerOp   time.Duration // user and system time of all server processes
	PeakMemory int64         // bytes, of all server processes, their highest so far
	Written    int64         // bytes sent to the disk
}

// Comparison is one workload on the system under test and the one beside it.
type Comparison struct {
	Workload string
	Systems  []string
	Rounds   map[string][]Sample
}

// NewComparison has no rounds yet.
func NewComparison(workload string, systems ...string) *Comparison {
	return &Comparison{Workload: workload, Systems: systems, Rounds: map[string][]Sample{}}
}

// Add adds a round of one system.
func (c *Comparison) Add(system string, s Sample) { c.Rounds[system] = append(c.Rounds[system], s) }

// Values are the comparisons that rows point to.
func Values(rows []*Comparison) []Comparison {
	out := make([]Comparison, len(rows))
	for i, r := range rows {
		out[i] = *r
	}
	return out
}

// median is that of f over all rounds: 0 if there is none.
func median[T int64 | float64 | time.Duration](rounds []Sample, f func(Sample) T) T {
	v := make([]T, len(rounds))
	for i, s := range rounds {
		v[i] = f(s)
	}
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[len(v)/2]
}

func (c *Comparison) median(system string) Sample {
	r := c.Rounds[system]
	return Sample{
		PerSecond:  median(r, func(s Sample) float64 { return s.PerSecond }),
		P50:        median(r, func(s Sample) time.Duration { return s.P50 }),
		P99:        median(r, func(s Sample) time.Duration { return s.P99 }),
		CPUPerOp:   median(r, func(s Sample) time.Duration { return s.CPUPerOp }),
		PeakMemory: median(r, func(s Sample) int64 { return s.PeakMemory }),
		Written:    median(r, func(s Sample) int64 { return s.Written }),
	}
}

// Print writes a Markdown table: a row a system, and the ratios of the first
// system's medians to the second's. Workloads that never ran are left out.
func Print(w io.Writer, title string, rows []Comparison) {
	if len(rows) == 0 {
		return // a suite that prints a table of its own
	}
	fmt.Fprintf(w, "\n### %s\n\n| workload | system | /s | p50 | p99 | CPU/op | memory | written |\n|---|---|---:|---:|---:|---:|---:|---:|\n", title)
	for i := range rows {
		c := &rows[i]
		if len(c.Rounds) == 0 {
			continue
		}
		for _, name := range c.Systems {
			m := c.median(name)
			fmt.Fprintf(w, "| %s | %s | %.0f | %s | %s | %s | %s | %s |\n", c.Workload, name,
				m.PerSecond, short(m.P50), short(m.P99), short(m.CPUPerOp), bytesOf(m.PeakMemory), bytesOf(m.Written))
		}
		if len(c.Systems) == 2 {
			a, b := c.median(c.Systems[0]), c.median(c.Systems[1])
			fmt.Fprintf(w, "| | **ratio** | %s | %s | %s | %s | %s | %s |\n", ratio(a.PerSecond, b.PerSecond),
				ratio(float64(a.P50), float64(b.P50)), ratio(float64(a.P99), float64(b.P99)), ratio(float64(a.CPUPerOp), float64(b.CPUPerOp)),
				ratio(float64(a.PeakMemory), float64(b.PeakMemory)), ratio(float64(a.Written), float64(b.Written)))
		}
	}
}

func ratio(a, b float64) string {
	if a == 0 || b == 0 {
		return "–"
	}
	return fmt.Sprintf("**%.2f×**", a/b)
}

func short(d time.Duration) string {
	switch {
	case d == 0:
		return "–"
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	default:
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
}

func bytesOf(n int64) string {
	if n == 0 {
		return "–"
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(n)/(1<<20)), ".0") + " MiB"
}
