package policy

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// The lanes that are not a server's; no server has such a name.
const (
	laneCore  = ""       // what concerns the ledger and the core server only
	laneWrite = "/write" // steps that wait to be written
)

const (
	// laneWorkers are how many tasks of one lane are done at once.
	laneWorkers = 3
	// A task that fails is done again after retryFirst, and then ever later.
	retryFirst = 200 * time.Millisecond
	retryMost  = 5 * time.Second
)

// task is something to look at. It carries no more than where: what there is to
// do is decided from what is found.
type task struct {
	place place
	lane  string
}

// lanes do tasks, each server's in a lane of its own, so that one that does not
// answer holds up its own only. A task that is asked for again while it waits
// is done once.
type lanes struct {
	do func(context.Context, task) (again time.Duration, err error)
	// failed is told of each error of do, and how many there were before it
	// without a success.
	failed func(t task, err error, before int)

	mu     sync.Mutex
	queues map[string]workqueue.TypedRateLimitingInterface[task]
	start  func(workqueue.TypedRateLimitingInterface[task]) // nil until run, and after
}

func newLanes(do func(context.Context, task) (time.Duration, error), failed func(task, error, int)) *lanes {
	return &lanes{do: do, failed: failed, queues: map[string]workqueue.TypedRateLimitingInterface[task]{}}
}

// after has a task done once d has passed. Before run it is dropped: run begins
// by looking at everything.
func (l *lanes) after(t task, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.start == nil {
		return
	}
	q := l.queues[t.lane]
	if q == nil {
		q = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[task](retryFirst, retryMost))
		l.queues[t.lane] = q
		l.start(q)
	}
	q.AddAfter(t, d)
}

// run does tasks until ctx ends, which ends beside as well: that runs meanwhile.
func (l *lanes) run(ctx context.Context, beside func()) {
	var workers sync.WaitGroup
	l.mu.Lock()
	l.start = func(q workqueue.TypedRateLimitingInterface[task]) {
		for range laneWorkers {
			workers.Go(func() { l.work(ctx, q) })
		}
	}
	l.mu.Unlock()
	beside()
	l.mu.Lock()
	l.start = nil
	for _, q := range l.queues {
		q.ShutDown()
	}
	l.mu.Unlock()
	workers.Wait()
}

// prune ends the lanes of servers that are not to be kept.
func (l *lanes) prune(keep func(lane string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for lane, q := range l.queues {
		if lane != laneCore && lane != laneWrite && !keep(lane) {
			q.ShutDown()
			delete(l.queues, lane)
		}
	}
}

func (l *lanes) work(ctx context.Context, q workqueue.TypedRateLimitingInterface[task]) {
	for {
		t, done := q.Get()
		if done {
			return
		}
		if ctx.Err() == nil {
			switch again, err := l.do(ctx, t); {
			case err != nil:
				l.failed(t, err, q.NumRequeues(t))
				q.AddRateLimited(t)
			case again > 0:
				q.Forget(t)
				q.AddAfter(t, again)
			default:
				q.Forget(t)
			}
		}
		q.Done(t)
	}
}
