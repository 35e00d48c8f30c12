package measure

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xbernetes/xbernetes/test/lab/process"
)

// Drive runs total operations on n clients at once, and measures them and the
// servers. An operation is told its client and its number.
func Drive(ctx context.Context, servers []*process.Process, n, total int, op func(ctx context.Context, client, i int) error) (Sample, error) {
	before, err := process.UsageOf(servers...)
	if err != nil {
		return Sample{}, err
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
		return Sample{}, err
	}
	after, err := process.UsageOf(servers...)
	if err != nil {
		return Sample{}, err
	}
	all := slices.Concat(took...)
	return Sample{
		PerSecond:  float64(total) / elapsed.Seconds(),
		P50:        Percentile(all, 50),
		P99:        Percentile(all, 99),
		CPUPerOp:   (after.CPU - before.CPU) / time.Duration(total),
		PeakMemory: after.Peak,
		Written:    after.Written - before.Written,
	}, nil
}

// Percentile sorts d and returns its percentile p, or 0 if d is empty.
func Percentile(d []time.Duration, p int) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[min(len(d)-1, len(d)*p/100)]
}

// RandomBytes are n letters and digits.
func RandomBytes(n int) []byte {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	b := make([]byte, n)
	for i := range b {
		b[i] = letters[rand.IntN(len(letters))]
	}
	return b
}
