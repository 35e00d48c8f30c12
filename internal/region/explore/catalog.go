package explore

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// catalog numbers whatever states are made of, so that states are small and quickly
// compared, and remembers what clients do after which answers.
type catalog struct {
	keys     []objectKey
	keyOf    map[objectKey]int
	bodies   []stored.Body
	bodyOf   map[string]int
	answers  []answer // the first is none
	answerOf map[string]int
	texts    []string
	textOf   map[string]int
	nodes    int
}

type objectKey struct {
	place stored.Place
	kind  stored.Kind
	name  string
}

// answer is what a place said, and the objects that it showed.
type answer struct {
	said  stored.Answer
	shown objects
}

// versionsOf are the versions of one object that the answer shows, as bits.
func (a *answer) versionsOf(key int) uint64 {
	if o, ok := a.shown.find(key); ok {
		return 1 << o.version
	}
	return 0
}

// call is a request, with the numbers of what it names; key is that of its object, if it
// is not a List.
type call struct {
	stored.Request
	key, body, version int
}

// node is a point in a pass of a task: what was answered so far decides what the client
// does there. Nodes are shared by all states.
type node struct {
	id       int
	task     Task
	parent   *node
	got      []int // answers to the parent's batch
	batch    []call
	ended    bool   // the pass makes no further call
	result   string // of the pass, if it has ended
	known    []knowledge
	children map[string]*node
}

// knowledge is which versions of an object the client has seen in this pass, as bits.
type knowledge struct {
	key      int
	versions uint64
}

func newCatalog() *catalog {
	return &catalog{
		keyOf: map[objectKey]int{}, bodyOf: map[string]int{}, textOf: map[string]int{},
		answers: make([]answer, 1), answerOf: map[string]int{},
	}
}

func (c *catalog) key(k objectKey) int {
	n, ok := c.keyOf[k]
	if !ok {
		n = len(c.keys)
		c.keys, c.keyOf[k] = append(c.keys, k), n
	}
	return n
}

func (c *catalog) body(b stored.Body) int {
	s := fmt.Sprintf("%T%v", b, b)
	n, ok := c.bodyOf[s]
	if !ok {
		n = len(c.bodies)
		c.bodies, c.bodyOf[s] = append(c.bodies, b), n
	}
	return n
}

func (c *catalog) text(s string) int {
	n, ok := c.textOf[s]
	if !ok {
		n = len(c.texts)
		c.texts, c.textOf[s] = append(c.texts, s), n
	}
	return n
}

// answer numbers what a place says: the outcome, and the objects that it shows.
func (c *catalog) answer(outcome stored.Outcome, shown objects, list bool) int {
	code := []byte(outcome)
	for _, o := range shown {
		for _, n := range []int{o.key, o.version, o.body} {
			code = strconv.AppendInt(append(code, ' '), int64(n), 10)
		}
	}
	if list {
		code = append(code, 'L')
	}
	n, ok := c.answerOf[string(code)]
	if ok {
		return n
	}
	a := answer{stored.Answer{Outcome: outcome}, shown}
	for _, o := range shown {
		object := stored.Object{Place: c.keys[o.key].place, Version: version(o.version), Body: c.bodies[o.body]}
		if list {
			a.said.Objects = append(a.said.Objects, object)
		} else {
			a.said.Object = object
		}
	}
	n = len(c.answers)
	c.answers, c.answerOf[string(code)] = append(c.answers, a), n
	return n
}

func version(n int) stored.Version { return stored.Version(strconv.Itoa(n)) }

// root is where passes of a task begin.
func (c *catalog) root(t Task) *node { return c.newNode(&node{task: t}) }

// child is where a client is once it has got these answers at n.
func (c *catalog) child(n *node, got []int) *node {
	var code []byte
	for _, a := range got {
		code = strconv.AppendInt(append(code, ' '), int64(a), 10)
	}
	if next := n.children[string(code)]; next != nil {
		return next
	}
	next := c.newNode(&node{task: n.task, parent: n, got: got, known: n.learn(c, got)})
	if n.children == nil {
		n.children = map[string]*node{}
	}
	n.children[string(code)] = next
	return next
}

// learn returns what the client knows at n and by these answers.
func (n *node) learn(c *catalog, got []int) []knowledge {
	known := slices.Clone(n.known)
	for _, a := range got {
		for _, o := range c.answers[a].shown {
			i := slices.IndexFunc(known, func(k knowledge) bool { return k.key == o.key })
			if i < 0 {
				i, known = len(known), append(known, knowledge{key: o.key})
			}
			known[i].versions |= 1 << o.version
		}
	}
	return known
}

// newNode finds out what the client does at n, by running its pass from the start.
func (c *catalog) newNode(n *node) *node {
	c.nodes++
	n.id = c.nodes
	var history [][]stored.Answer
	for at := n; at.parent != nil; at = at.parent {
		var said []stored.Answer
		for _, a := range at.got {
			said = append(said, c.answers[a].said)
		}
		history = append(history, said)
	}
	slices.Reverse(history)
	requests, result, ended := replay(n.task.Pass, history)
	n.ended, n.result = ended, result
	for _, r := range requests {
		x := call{Request: r}
		if r.Action != stored.List {
			x.key = c.key(objectKey{r.Place, r.Kind, r.Name})
		}
		if r.Body != nil {
			x.body = c.body(r.Body)
		}
		x.version, _ = strconv.Atoi(string(r.Version))
		n.batch = append(n.batch, x)
	}
	return n
}

var errAbandoned = errors.New("explore: the pass is not needed any more")

// replay runs a pass with the answers that it got before, up to the calls that nobody has
// answered yet.
func replay(pass func(stored.Call) string, history [][]stored.Answer) (requests []stored.Request, result string, ended bool) {
	var answers []stored.Answer
	run := func(yield func([]stored.Request) bool) {
		defer func() {
			if r := recover(); r != nil && r != any(errAbandoned) {
				panic(r)
			}
		}()
		result = pass(func(requests ...stored.Request) []stored.Answer {
			if !yield(requests) {
				panic(errAbandoned)
			}
			return answers
		})
		ended = true
	}
	next, stop := iter.Pull(iter.Seq[[]stored.Request](run))
	defer stop()
	requests, more := next()
	for _, answers = range history {
		if !more {
			panic("explore: a pass ends where it went on before: it is not deterministic")
		}
		requests, more = next()
	}
	return slices.Clone(requests), result, ended
}
