// Package collector lets Go's garbage collector run less often while a process with a
// small heap is busy. It never acts against GOGC or GOMEMLIMIT, and at rest leaves Go's
// default alone.
package collector

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const (
	// byDefault is Go's own percentage: a heap grows by as much as was alive after the
	// last collection until the next one begins.
	byDefault = 100
	// room is how far a busy heap may grow in any case, in bytes. A heap with more than
	// that alive is collected as by default.
	room = 128 << 20
	// share is the part of the memory that room may be at most, as a divisor.
	share = 16
	// often is how many collections between two looks make a process busy.
	often = 2
	// every is the time between two looks.
	every = 5 * time.Second
)

// Run watches how often the collector runs, and sets how far the heap may grow, until
// ctx ends; then Go's default holds again. If the environment has GOGC or GOMEMLIMIT,
// Run returns at once and changes nothing. A process calls it once.
func Run(ctx context.Context) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	p := pacer{memory: memory(), percent: byDefault}
	p.look(read()) // the collections before count for nothing
	defer debug.SetGCPercent(byDefault)
	for tick := time.NewTicker(every); ; {
		select {
		case <-tick.C:
			if before, now := p.percent, p.look(read()); now != before {
				debug.SetGCPercent(now)
			}
		case <-ctx.Done():
			tick.Stop()
			return
		}
	}
}

// memory is how much there is for this process, in bytes: by its cgroup, or else in the
// machine; 0 if nobody knows.
func memory() uint64 {
	n, err := memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem)()
	if err != nil {
		return 0
	}
	return n
}

// heap is what a look sees.
type heap struct {
	live   uint64 // bytes that the last collection found in use
	cycles uint64 // collections since the process began
}

func read() heap {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/cycles/automatic:gc-cycles"}}
	metrics.Read(s)
	return heap{live: s[0].Value.Uint64(), cycles: s[1].Value.Uint64()}
}

// pacer decides how far the heap may grow.
type pacer struct {
	memory  uint64 // bytes; 0: not known
	cycles  uint64 // at the last look
	percent int    // decided by the last look
}

// look returns the percentage of what is alive by which the heap may grow. Small changes
// are not made, because each stops the process for a moment.
func (p *pacer) look(h heap) int {
	busy := h.cycles-p.cycles >= often
	p.cycles = h.cycles
	want := byDefault
	if grow := min(room, p.memory/share); busy && h.live > 0 && grow > h.live {
		want = int(min(100*grow/h.live, math.MaxInt32))
	}
	if want == byDefault || want > p.percent*5/4 || want < p.percent*4/5 {
		p.percent = want
	}
	return p.percent
}
