// Package s3test is an S3 store in memory with a clock of its own, for tests of
// what a journal makes of time. It never looks at the machine's clock once it
// is made.
package s3test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// Clock is the clock of a store. To move it on is to let every machine that
// uses the store sleep meanwhile, its clocks included.
type Clock struct {
	mu  sync.Mutex
	now time.Time // guarded by mu
}

// Now is the store's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Since is how long ago t was, by the store's time.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// Advance moves the clock on by d; back, if d is negative.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// New returns a store with one empty bucket, and its clock. With skew it refuses
// what was signed so long before its time, or after it, as S3 does from 15
// minutes on; with 0 it takes any signature, as some look-alikes do.
func New(bucket string, skew time.Duration) (http.Handler, *Clock, error) {
	clock := &Clock{now: time.Now()}
	backend := s3mem.New(s3mem.WithTimeSource(clock))
	if err := backend.CreateBucket(bucket); err != nil {
		return nil, nil, fmt.Errorf("create bucket %s: %w", bucket, err)
	}
	store := gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog()), gofakes3.WithTimeSource(clock), gofakes3.WithTimeSkewLimit(skew)).Server()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := httptest.NewRecorder()
		store.ServeHTTP(got, r)
		maps.Copy(w.Header(), got.Header())
		w.Header().Set("Date", clock.Now().UTC().Format(http.TimeFormat))
		w.WriteHeader(got.Code)
		_, _ = w.Write(got.Body.Bytes()) // a client that is gone
	}), clock, nil
}
