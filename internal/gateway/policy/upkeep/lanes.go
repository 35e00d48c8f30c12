package upkeep

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/xbernetes/xbernetes/internal/gateway/policy/ledger"
)

// The names of the lanes that belong to no server. No server can have such a name.
const (
	laneCore  = ""       // for tasks that concern the ledger and the core server only
	laneWrite = "/write" // for changes that wait to be written to a ledger
)

const (
	// laneWorkers are how many tasks of one lane are done at once.
	laneWorkers = 3
	// A task that fails is done again after retryFirst; the pause doubles up to retryMost.
	retryFirst = 200 * time.Millisecond
	retryMost  = 5 * time.Second
)

// task is a namespace to look at, in a lane. It does not say what to do there: do decides that
// from what it finds.
type task struct {
	at   ledger.Key
	lane string
}

// lanes does tasks. Each server's tasks are in a lane of their own, so that a server that does
// not answer delays only its own tasks. A task that is added again while it waits is done
// once.
type lanes struct {
	do func(context.Context, task) (again time.Duration, err error)
	// failed is called with each error of do, and the number of the task's errors directly
	// before it.
	failed func(t task, err error, before int)

	mu     sync.Mutex
	queues map[string]workqueue.TypedRateLimitingInterface[task] // by lane; guarded by mu
	start  func(workqueue.TypedRateLimitingInterface[task])      // nil before and after run; guarded by mu
}

func newLanes(do func(context.Context, task) (time.Duration, error), failed func(task, error, int)) *lanes {
	return &lanes{do: do, failed: failed, queues: map[string]workqueue.TypedRateLimitingInterface[task]{}}
}

// after has a task done once d has passed. Before run it drops the task, because a starting
// gateway gets an event for every object.
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

// run does tasks until ctx ends, and calls beside meanwhile. beside must return
// when ctx ends.
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

// prune ends the lanes of servers for which keep is false.
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
