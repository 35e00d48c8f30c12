// Package queue orders work: live changes go ahead of the backlog that a restart or a new
// peer brings. It never holds a key twice, never hands a key to two workers at once, and
// does no work itself.
package queue

import (
	"container/list"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

const (
	// backlogEvery: every 16th pop takes a key from the backlog even while live keys
	// wait. The backlog is then slow, but never stands still.
	backlogEvery = 16
	// liveRetries is how many retries of a failing key are live; later ones are backlog.
	liveRetries = 4
)

// Queue is a work queue of two lanes, with a backoff for each key that fails.
// It is safe for concurrent use. Get, Done, Forget and ShutDown are client-go's.
type Queue[T comparable] struct {
	workqueue.TypedRateLimitingInterface[T]
	lanes *lanes[T]
}

// New makes a queue. The wait before a retry begins at first and doubles up to last.
func New[T comparable](first, last time.Duration) *Queue[T] {
	l := &lanes[T]{marked: make(map[T]struct{}), waiting: make(map[T]place)}
	inner := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{Queue: l})
	return &Queue[T]{
		TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[T](first, last),
			workqueue.TypedRateLimitingQueueConfig[T]{
				DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[T]{Queue: inner}),
			}),
		lanes: l,
	}
}

// Live adds a key that has just changed. If the key waits in the backlog, it moves to the
// live lane.
func (q *Queue[T]) Live(key T) {
	q.lanes.mark(key)
	q.Add(key)
}

// Backlog adds a key that can wait. If the key is in the live lane, it stays there.
func (q *Queue[T]) Backlog(key T) { q.Add(key) }

// Again adds a key that failed, after its backoff. A key that keeps failing joins the
// backlog.
func (q *Queue[T]) Again(key T) {
	if q.NumRequeues(key) < liveRetries {
		q.lanes.mark(key)
	}
	q.AddRateLimited(key)
}

// Depth returns how many keys wait in each lane.
func (q *Queue[T]) Depth() (live, backlog int) {
	q.lanes.mu.Lock()
	defer q.lanes.mu.Unlock()
	return q.lanes.live.Len(), q.lanes.backlog.Len()
}

// place is the position of a waiting key.
type place struct {
	lane *list.List
	at   *list.Element
}

// lanes holds the waiting keys of the work queue, which calls Push, Pop, Touch and Len
// under its own lock.
type lanes[T comparable] struct {
	mu            sync.Mutex
	live, backlog list.List
	waiting       map[T]place
	marked        map[T]struct{} // keys whose next Push or Touch puts them into the live lane
	pops          int
}

func (l *lanes[T]) mark(key T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marked[key] = struct{}{}
}

// Push adds a key that does not wait yet.
func (l *lanes[T]) Push(key T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lane := &l.backlog
	if _, ok := l.marked[key]; ok {
		delete(l.marked, key)
		lane = &l.live
	}
	l.waiting[key] = place{lane, lane.PushBack(key)}
}

// Touch is called for a key that is added while it waits.
func (l *lanes[T]) Touch(key T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.marked[key]; !ok {
		return
	}
	delete(l.marked, key)
	if p := l.waiting[key]; p.lane == &l.backlog {
		p.lane.Remove(p.at)
		l.waiting[key] = place{&l.live, l.live.PushBack(key)}
	}
}

// Pop takes the next key. The queue must not be empty.
func (l *lanes[T]) Pop() T {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pops++
	lane := &l.live
	if lane.Len() == 0 || l.backlog.Len() > 0 && l.pops%backlogEvery == 0 {
		lane = &l.backlog
	}
	key := lane.Remove(lane.Front()).(T)
	delete(l.waiting, key)
	return key
}

// Len returns how many keys wait.
func (l *lanes[T]) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.live.Len() + l.backlog.Len()
}
