package door

import (
	"net/http"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// deaf is the answer to a caller who takes nothing of it.
type deaf struct {
	ended chan struct{}
	once  sync.Once
}

func newDeaf() *deaf { return &deaf{ended: make(chan struct{})} }

func (d *deaf) Header() http.Header { return http.Header{} }
func (d *deaf) WriteHeader(int)     {}

func (d *deaf) Write([]byte) (int, error) {
	<-d.ended
	return 0, os.ErrDeadlineExceeded
}

func (d *deaf) SetWriteDeadline(time.Time) error {
	d.once.Do(func() { close(d.ended) })
	return nil
}

// TestStalls: one caller holds up as many answers as are free, and no more; the rest
// are ended after a second. Others still have places, and all come back.
func TestStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stalls := NewStalls(8)
		var all sync.WaitGroup
		var held []*deaf
		answer := func(caller string) *deaf {
			d := newDeaf()
			held = append(held, d)
			all.Go(func() {
				if _, err := stalls.Writer(d, caller).Write([]byte("x")); err == nil {
					t.Error("an answer that nobody takes was sent")
				}
			})
			return d
		}
		open := func(answers []*deaf) (n int) {
			for _, d := range answers {
				select {
				case <-d.ended:
				default:
					n++
				}
			}
			return n
		}
		var greedy []*deaf
		for range 20 {
			greedy = append(greedy, answer("greedy"))
		}
		time.Sleep(500 * time.Millisecond)
		if got := open(greedy); got != 20 {
			t.Errorf("%d of 20 answers go on after half a second", got)
		}
		time.Sleep(time.Second)
		if got := open(greedy); got != 4 {
			t.Errorf("one caller holds up %d answers, where 8 may be; want 4", got)
		}
		other := answer("other")
		time.Sleep(2 * time.Second)
		if open([]*deaf{other}) != 1 {
			t.Error("another caller has no place")
		}
		for _, d := range held {
			_ = d.SetWriteDeadline(time.Now())
		}
		all.Wait()
		if got := stalls.places.Taken(); got != 0 {
			t.Errorf("%d places are not given back", got)
		}
	})
}
