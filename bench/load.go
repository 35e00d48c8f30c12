package main

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xbernetes/xbernetes/test/lab/process"
)

// drive runs total operations on n clients at once, and measures them and the
// servers. An operation is told its client and its number.
func drive(ctx context.Context, servers []*process.Process, n, total int, op func(ctx context.Context, client, i int) error) (sample, error) {
	before, err := process.UsageOf(servers...)
	if err != nil {
		return sample{}, err
	}
	took := make([][]time.Duration, n)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for c := range n {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= total || ctx.Err() != nil {
					return
				}
				t := time.Now()
				if err := op(ctx, c, i); err != nil {
					cancel(err)
					return
				}
				took[c] = append(took[c], time.Since(t))
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(start)
	if err := context.Cause(ctx); err != nil {
		return sample{}, err
	}
	after, err := process.UsageOf(servers...)
	if err != nil {
		return sample{}, err
	}
	all := slices.Concat(took...)
	return sample{
		PerSecond:  float64(total) / elapsed.Seconds(),
		P50:        percentile(all, 50),
		P99:        percentile(all, 99),
		CPUPerOp:   (after.CPU - before.CPU) / time.Duration(total),
		PeakMemory: after.Peak,
		Written:    after.Written - before.Written,
	}, nil
}

func percentile(d []time.Duration, p int) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[min(len(d)-1, len(d)*p/100)]
}
