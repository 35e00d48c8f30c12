package queue

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func drain(q *Queue[int], n int) []int {
	var got []int
	for range n {
		key, _ := q.Get()
		got = append(got, key)
		q.Done(key)
	}
	return got
}

func TestLiveGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[int](time.Millisecond, time.Second)
		defer q.ShutDown()
		for i := range 5 {
			q.Backlog(i)
		}
		q.Live(10)
		q.Live(3)    // comes forward
		q.Backlog(3) // stays there
		if live, backlog := q.Depth(); live != 2 || backlog != 4 {
			t.Errorf("%d live and %d in the backlog; want 2 and 4", live, backlog)
		}
		if diff := cmp.Diff([]int{10, 3, 0, 1, 2, 4}, drain(q, 6)); diff != "" {
			t.Error(diff)
		}
	})
}

// A key that changes while a worker has it is live when the worker gives it back.
func TestLiveWhileAtWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[int](time.Millisecond, time.Second)
		defer q.ShutDown()
		q.Backlog(1)
		q.Backlog(2)
		key, _ := q.Get()
		q.Live(key)
		q.Done(key)
		if diff := cmp.Diff([]int{1, 2}, drain(q, 2)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestBacklogNeverStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[int](time.Millisecond, time.Second)
		defer q.ShutDown()
		q.Backlog(-1)
		for i := range 100 {
			q.Live(i)
		}
		if at := slices.Index(drain(q, 101), -1); at != backlogEvery-1 {
			t.Errorf("the backlog's key came at place %d; want %d", at, backlogEvery-1)
		}
	})
}

func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[int](time.Second, time.Minute)
		defer q.ShutDown()
		start := time.Now()
		for range liveRetries {
			q.Again(1)
			drain(q, 1)
		}
		if waited := time.Since(start); waited != (1+2+4+8)*time.Second {
			t.Errorf("%d retries took %s; want each to wait twice as long", liveRetries, waited)
		}
		q.Again(1)
		time.Sleep(16 * time.Second)
		synctest.Wait()
		q.Live(2)
		if diff := cmp.Diff([]int{2, 1}, drain(q, 2)); diff != "" {
			t.Errorf("a key that goes on failing is still ahead of a live one:\n%s", diff)
		}
	})
}

// However keys are added and taken, none is lost and none waits twice.
func FuzzQueue(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 1, 130, 131, 255})
	f.Fuzz(func(t *testing.T, ops []byte) {
		l := &lanes[int]{marked: make(map[int]struct{}), waiting: make(map[int]place)}
		want := map[int]bool{}
		for _, op := range ops {
			key := int(op % 8)
			switch {
			case op >= 192:
				if l.Len() > 0 {
					got := l.Pop()
					if !want[got] {
						t.Fatalf("%d was handed out and does not wait", got)
					}
					delete(want, got)
				}
				continue
			case op >= 96:
				l.mark(key)
			}
			if want[key] {
				l.Touch(key)
			} else {
				l.Push(key)
			}
			want[key] = true
		}
		if l.Len() != len(want) {
			t.Fatalf("%d keys wait; want %d", l.Len(), len(want))
		}
	})
}
