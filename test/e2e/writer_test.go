package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/test/lab/wait"
)

// A write is one request that changed, or may have changed, an object.
type write struct {
	object  string
	token   string // of a note that was appended; "" for the creation
	deleted bool   // the object was deleted
	acked   bool   // the server said that it is done; else it may be or not
	version string // the resourceVersion that the acknowledgement named
	err     error
}

// A writer makes widgets, appends notes to some and deletes others, one
// request at a time, and remembers what was acknowledged. A note is appended
// by a patch without a precondition: were it executed twice, it would be there
// twice.
type writer struct {
	name    string
	objects dynamic.ResourceInterface

	mu     sync.Mutex
	writes []write
	acked  int
}

// requestTimeout bounds a writer's request.
const requestTimeout = 10 * time.Second

// run writes until ctx ends.
func (w *writer) run(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		object := fmt.Sprintf("%s-%d", w.name, n)
		if !w.attempt(ctx, write{object: object}) {
			continue
		}
		for note := range n % 4 {
			if ctx.Err() != nil || !w.attempt(ctx, write{object: object, token: fmt.Sprintf("%s-note-%d", object, note)}) {
				break
			}
		}
		if n%5 == 4 && ctx.Err() == nil {
			w.attempt(ctx, write{object: object, deleted: true})
		}
	}
}

// attempt sends one write and records its outcome. False: it is not known to
// be done, and the server may need a moment.
func (w *writer) attempt(ctx context.Context, this write) bool {
	// Not ctx: the end of the run must not cut an answer off.
	request, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	var obj *unstructured.Unstructured
	objects := w.objects
	switch {
	case this.deleted:
		this.err = objects.Delete(request, this.object, metav1.DeleteOptions{})
	case this.token == "":
		made := newWidget(this.object, 1)
		setField(made, []any{}, "spec", "tags")
		obj, this.err = objects.Create(request, made, metav1.CreateOptions{})
	default:
		patch, err := json.Marshal([]map[string]string{{"op": "add", "path": "/spec/tags/-", "value": this.token}})
		if err != nil {
			panic(err)
		}
		obj, this.err = objects.Patch(request, this.object, types.JSONPatchType, patch, metav1.PatchOptions{})
	}
	this.acked = this.err == nil
	if this.acked && obj != nil {
		this.version = obj.GetResourceVersion()
	}
	w.mu.Lock()
	w.writes = append(w.writes, this)
	if this.acked {
		w.acked++
	}
	w.mu.Unlock()
	pace := 3 * time.Millisecond // to leave some of the machine to the server
	if !this.acked {
		pace = 50 * time.Millisecond // not to spin while the server is away
	}
	select {
	case <-ctx.Done():
	case <-time.After(pace):
	}
	return this.acked
}

func (w *writer) acknowledged() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.acked
}

// A fate is what the writes say of one object.
type fate struct {
	made, mayBeMade       bool
	deleted, mayBeDeleted bool
	tokens, maybe         []string
	version               string // of the last write, if that was acknowledged
}

// fates folds the writes, each object's in the order in which they were sent.
func (w *writer) fates() map[string]*fate {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := map[string]*fate{}
	for _, this := range w.writes {
		f := all[this.object]
		if f == nil {
			f = &fate{}
			all[this.object] = f
		}
		f.version = this.version
		switch {
		case this.deleted:
			f.deleted, f.mayBeDeleted = this.acked, true
		case this.token == "":
			f.made, f.mayBeMade = this.acked, true
		case this.acked:
			f.tokens = append(f.tokens, this.token)
		default:
			f.maybe = append(f.maybe, this.token)
		}
	}
	return all
}

// check holds what a server has against what was acknowledged. It returns how
// many acknowledged and how many other writes it found done.
func (w *writer) check(t testing.TB, side string, found map[string]*unstructured.Unstructured) (acked, unacked int) {
	t.Helper()
	for name, f := range w.fates() {
		obj := found[name]
		if obj == nil {
			if f.made && !f.mayBeDeleted {
				t.Errorf("%s: %s was acknowledged and is lost", side, name)
			}
			if f.made {
				acked++
			}
			continue
		}
		if f.made {
			acked++
		} else {
			unacked++
		}
		if f.deleted {
			t.Errorf("%s: the deletion of %s was acknowledged and is lost", side, name)
		}
		if f.version != "" && obj.GetResourceVersion() != f.version {
			t.Errorf("%s: %s has resourceVersion %s; its last write was acknowledged at %s", side, name, obj.GetResourceVersion(), f.version)
		}
		times := map[string]int{}
		tags, _, _ := unstructured.NestedStringSlice(obj.Object, "spec", "tags")
		for _, tag := range tags {
			times[tag]++
		}
		for _, token := range f.tokens {
			if times[token] != 1 {
				t.Errorf("%s: %s is there %d times; its one write was acknowledged", side, token, times[token])
			}
			acked++
			delete(times, token)
		}
		for _, token := range f.maybe {
			if times[token] > 1 {
				t.Errorf("%s: %s is there %d times; it was written once", side, token, times[token])
			}
			unacked += times[token]
			delete(times, token)
		}
		if len(times) > 0 {
			t.Errorf("%s: %s has notes that nobody wrote: %v", side, name, times)
		}
	}
	w.checkErrors(t)
	return acked, unacked
}

// checkErrors: a write that nobody else could have made before is never
// refused, it is done or it fails in a way that can be tried again.
func (w *writer) checkErrors(t testing.TB) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, this := range w.writes {
		if this.err != nil && !retryable(this.err) {
			t.Errorf("write to %s (note %q, deletion %v) got an error that says not to try again: %v", this.object, this.token, this.deleted, this.err)
		}
	}
}

// retryable tells errors that say nothing about the request, only about the
// server: no answer, 429 and 5xx.
func retryable(err error) bool {
	status, ok := err.(apierrors.APIStatus)
	if !ok {
		return true // from the network, or out of time
	}
	code := status.Status().Code
	return code == http.StatusTooManyRequests || code >= 500
}

// all lists every widget of the namespace default, once, as the API has it now.
func (s *server) all(t testing.TB) map[string]*unstructured.Unstructured {
	t.Helper()
	_, dyn := s.clients(t)
	found := map[string]*unstructured.Unstructured{}
	wait.Poll(t, 60*time.Second, s.name+"'s server lists widgets", func(ctx context.Context) error {
		list, err := dyn.Resource(widgets).Namespace("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			found[list.Items[i].GetName()] = &list.Items[i]
		}
		return nil
	})
	return found
}

// onceConfig is that of a client that sends every request once.
func (s *server) onceConfig() *rest.Config {
	cfg, err := s.config()
	if err != nil {
		panic(err) // the kubeconfig was read before
	}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return noRetry{next} })
	return cfg
}

// once is a client of widgets that sends every request once.
func (s *server) once() dynamic.ResourceInterface {
	dyn, err := dynamic.NewForConfig(s.onceConfig())
	if err != nil {
		panic(err)
	}
	return dyn.Resource(widgets).Namespace("default")
}

// noRetry hides the header that makes client-go send a request again.
type noRetry struct{ next http.RoundTripper }

func (n noRetry) RoundTrip(req *http.Request) (*http.Response, error) {
	answer, err := n.next.RoundTrip(req)
	if answer != nil {
		answer.Header.Del("Retry-After")
	}
	return answer, err
}

// A crew is some writers at work.
type crew struct {
	writers []*writer
	stop    context.CancelFunc
	done    sync.WaitGroup
}

// write starts n writers at a server. They end with the test, or when asked to.
func (s *server) write(t testing.TB, n int) *crew {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	c := &crew{stop: stop}
	for i := range n {
		client := s.once()
		w := &writer{name: fmt.Sprintf("%s-%d-%d", s.name, named.Add(1), i), objects: client}
		c.writers = append(c.writers, w)
		c.done.Go(func() { w.run(ctx) })
	}
	t.Cleanup(c.rest)
	return c
}

// rest stops the writers and waits until they have.
func (c *crew) rest() {
	c.stop()
	c.done.Wait()
}

func (c *crew) acknowledged() (n int) {
	for _, w := range c.writers {
		n += w.acknowledged()
	}
	return n
}

func (c *crew) lastError() (err error) {
	for _, w := range c.writers {
		w.mu.Lock()
		if n := len(w.writes); n > 0 && w.writes[n-1].err != nil {
			err = w.writes[n-1].err
		}
		w.mu.Unlock()
	}
	return err
}

// awaitWrites waits until the crew has got further acknowledgements.
func (c *crew) awaitWrites(t testing.TB, further int) {
	t.Helper()
	want := c.acknowledged() + further
	wait.Poll(t, 60*time.Second, fmt.Sprintf("%d writes are acknowledged", further), func(context.Context) error {
		if got := c.acknowledged(); got < want {
			return errors.Join(fmt.Errorf("%d more to go", want-got), c.lastError())
		}
		return nil
	})
}

// checkAll holds the servers against what the crews remember, and against each other.
func checkAll(t testing.TB, servers []*server, crews ...*crew) {
	t.Helper()
	meet(t, servers)
	var first map[string]*unstructured.Unstructured
	for _, s := range servers {
		found := s.all(t)
		var acked, unacked, sent int
		for _, c := range crews {
			for _, w := range c.writers {
				a, u := w.check(t, s.name, found)
				acked, unacked, sent = acked+a, unacked+u, sent+len(w.writes)
			}
		}
		t.Logf("%s: %d writes sent, %d acknowledged and there, %d there without", s.name, sent, acked, unacked)
		if first == nil {
			first = found
			continue
		}
		for name, obj := range found {
			if other := first[name]; other == nil || other.GetResourceVersion() != obj.GetResourceVersion() || other.GetUID() != obj.GetUID() {
				t.Errorf("%s has %s at %s, %s has %v", s.name, name, obj.GetResourceVersion(), servers[0].name, other)
			}
		}
		if len(found) != len(first) {
			t.Errorf("%s has %d widgets, %s has %d", s.name, len(found), servers[0].name, len(first))
		}
	}
}

// meet waits until every server shows what any of them had before.
func meet(t testing.TB, servers []*server) {
	t.Helper()
	for _, from := range servers {
		mark := fmt.Sprintf("mark-%d", named.Add(1))
		wait.Poll(t, 60*time.Second, from.name+"'s server takes writes", func(ctx context.Context) error {
			_, err := from.once().Create(ctx, newWidget(mark, 0), metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return nil // an attempt that seemed to fail
			}
			return err
		})
		for _, to := range servers {
			awaitObject(t, to.once(), mark, fmt.Sprintf("%s's server shows what %s's had", to.name, from.name), func(*unstructured.Unstructured) bool { return true })
		}
	}
}
