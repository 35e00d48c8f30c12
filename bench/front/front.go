// Package front sends requests to a server at a fixed rate, by any way that leads to it. It
// never starts the server, nor what stands before it.
package front

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/xbernetes/xbernetes/bench/measure"
	"github.com/xbernetes/xbernetes/test/lab/process"
)

// Rate is how many requests a second a front is sent.
const Rate = 500

// A Front is a way to a server: direct, or through something.
type Front struct {
	Name    string
	Base    string // URL before a path
	Client  *http.Client
	Servers []*process.Process
	Close   func() // ends what was started for it
}

// Do sends a request for a path, and returns the answer if it is 200 OK.
func (f *Front) Do(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.Base+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := f.Client.Do(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		resp.Body.Close()
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, body)
	}
	return resp, err
}

// Get returns the body that a path is answered with.
func (f *Front) Get(ctx context.Context, path string) ([]byte, error) {
	resp, err := f.Do(ctx, path)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// Gets sends total requests for a path at gatewayRate, each when it is due, however long
// others take, and measures each from when it was due.
func (f *Front) Gets(ctx context.Context, path string, total int) (measure.Sample, error) {
	for range 100 {
		if _, err := f.Get(ctx, path); err != nil {
			return measure.Sample{}, err
		}
	}
	before, err := process.UsageOf(f.Servers...)
	if err != nil {
		return measure.Sample{}, err
	}
	took := make([]time.Duration, total)
	failed := make(chan error, total)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range total {
		due := start.Add(time.Duration(i) * time.Second / Rate)
		time.Sleep(time.Until(due))
		wg.Go(func() {
			if _, err := f.Get(ctx, path); err != nil {
				failed <- err
			}
			took[i] = time.Since(due)
		})
	}
	wg.Wait()
	elapsed := time.Since(start)
	after, err := process.UsageOf(f.Servers...)
	if err != nil {
		return measure.Sample{}, err
	}
	select {
	case err := <-failed:
		return measure.Sample{}, err
	default:
	}
	return measure.Sample{
		PerSecond: float64(total) / elapsed.Seconds(), P50: measure.Percentile(took, 50), P99: measure.Percentile(took, 99),
		CPUPerOp: (after.CPU - before.CPU) / time.Duration(total), PeakMemory: after.Peak,
	}, nil
}
