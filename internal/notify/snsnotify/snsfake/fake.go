// Package snsfake is SNS and SQS in one process, for tests: as much of both as
// snsnotify asks for, with requests counted and faults on order. It never verifies a
// signature.
package snsfake

import (
	"cmp"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// Fake is SNS and SQS. The account of a caller is its access key.
type Fake struct {
	// URL is where both are served.
	URL string

	mu      sync.Mutex
	changed chan struct{}     // closed and replaced when a message comes
	refused map[string]string // codes of errors by action
	calls   map[string]int    // requests by action
	topics  map[string][]subscription
	queues  map[string]*queue // by ARN
	deliver func(body string) []string
	seen    int // messages and receipts so far
}

type subscription struct {
	arn, queue string
	not        string // the writer whose messages are left out
	raw        bool
}

type queue struct {
	policy   string
	maximum  int // length of a message
	messages []message
}

type message struct{ body, receipt string }

// New starts a fake with topics of these ARNs.
func New(t testing.TB, topics ...string) *Fake {
	f := &Fake{
		changed: make(chan struct{}), refused: map[string]string{}, calls: map[string]int{},
		topics: map[string][]subscription{}, queues: map[string]*queue{},
	}
	for _, arn := range topics {
		f.topics[arn] = nil
	}
	server := httptest.NewServer(f)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	f.URL = server.URL
	return f
}

// Refuse has an action, such as sqs:ReceiveMessage, fail with a code; "": no more.
func (f *Fake) Refuse(action, code string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused[action] = code
	f.wake()
}

// Deliver has every message that a topic sends to a queue replaced by others: none,
// several, or others than it was.
func (f *Fake) Deliver(become func(body string) []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deliver = become
}

// Send puts messages into all queues, as whoever may send to them could.
func (f *Fake) Send(bodies ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, q := range f.queues {
		for _, body := range bodies {
			f.put(q, body)
		}
	}
}

// Calls returns how many requests for an action came; actions are as in Refuse.
func (f *Fake) Calls(action string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[action]
}

// Queues returns the ARNs of the queues that exist.
func (f *Fake) Queues() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var arns []string
	for arn := range f.queues {
		arns = append(arns, arn)
	}
	return arns
}

// MakeQueue makes a queue with a policy, as its owner would.
func (f *Fake) MakeQueue(arn, policy string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queues[arn] = &queue{policy: policy, maximum: 256 << 10}
}

// RemoveQueues removes all queues.
func (f *Fake) RemoveQueues() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.queues)
	f.wake()
}

// Subscriptions returns how many subscriptions a topic has.
func (f *Fake) Subscriptions(topic string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.topics[topic])
}

func (f *Fake) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *Fake) put(q *queue, body string) {
	if len(body) > q.maximum {
		return
	}
	f.seen++
	q.messages = append(q.messages, message{body: body})
	f.wake()
}

// caller is who signed a request, and for which region.
type caller struct{ account, region string }

var credential = regexp.MustCompile(`Credential=([^/]+)/[^/]+/([^/]+)/`)

// ServeHTTP implements http.Handler.
func (f *Fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var who caller
	if m := credential.FindStringSubmatch(r.Header.Get("Authorization")); m != nil {
		who = caller{m[1], m[2]}
	}
	if target, ok := strings.CutPrefix(r.Header.Get("X-Amz-Target"), "AmazonSQS."); ok {
		f.serveQueue(w, r, who, target)
		return
	}
	f.serveTopic(w, r, who)
}

// begin counts a request, and returns the code that it is to be refused with.
func (f *Fake) begin(action string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[action]++
	return f.refused[action]
}

// await waits until a queue has messages, or time is up, and returns up to ten.
func (f *Fake) await(r *http.Request, arn string, wait time.Duration) (out []message, code string) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		f.mu.Lock()
		q := f.queues[arn]
		code, changed := f.refused["sqs:ReceiveMessage"], f.changed
		if q != nil && code == "" {
			out = f.take(q)
		}
		f.mu.Unlock()
		if q == nil || code != "" {
			return nil, cmp.Or(code, "QueueDoesNotExist")
		}
		if len(out) > 0 {
			return out, ""
		}
		select {
		case <-changed:
		case <-timer.C:
			return nil, ""
		case <-r.Context().Done():
			return nil, ""
		}
	}
}
