// Package swagger merges the OpenAPI v2 documents of many servers into one. It reads no
// more of a document than merging needs, and asks no server.
package swagger

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/xbernetes/xbernetes/internal/weight"
)

// MaxDecoded is what one server's document may weigh once it is decoded, in bytes as
// package weight counts them. kube-apiserver's own weighs 23 MiB.
const MaxDecoded = 64 << 20

// Document is one server's OpenAPI v2. It does not change once it is made.
type Document struct {
	paths  map[string]json.RawMessage
	shared map[string]json.RawMessage // definitions/NAME and parameters/NAME
	extras map[string]json.RawMessage // security and securityDefinitions
}

// Read reads an OpenAPI v2 document as far as merging needs it.
func Read(body []byte) (*Document, error) {
	if weight.Of(body) > MaxDecoded {
		return nil, fmt.Errorf("read OpenAPI v2: %w", weight.ErrTooHeavy)
	}
	var doc struct {
		Swagger     string                     `json:"swagger"`
		Paths       map[string]json.RawMessage `json:"paths"`
		Definitions map[string]json.RawMessage `json:"definitions"`
		Parameters  map[string]json.RawMessage `json:"parameters"`
		Security    json.RawMessage            `json:"security"`
		Definition  json.RawMessage            `json:"securityDefinitions"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, fmt.Errorf("read OpenAPI v2: %w", err)
	}
	if doc.Swagger != "2.0" {
		return nil, fmt.Errorf("read OpenAPI v2: it says that it is version %.20q", doc.Swagger)
	}
	s := &Document{paths: doc.Paths, shared: map[string]json.RawMessage{}, extras: map[string]json.RawMessage{}}
	for name, d := range doc.Definitions {
		s.shared["definitions/"+name] = d
	}
	for name, p := range doc.Parameters {
		s.shared["parameters/"+name] = p
	}
	if doc.Security != nil && doc.Definition != nil {
		s.extras["security"], s.extras["securityDefinitions"] = doc.Security, doc.Definition
	}
	return s, nil
}

// reference matches a schema's pointer to a shared definition or parameter. Quotes within a
// JSON string are escaped, so no description matches.
var reference = regexp.MustCompile(`("\$ref"\s*:\s*"#/)((?:definitions|parameters)/[^"\\]+)(")`)

// Merged is the OpenAPI v2 of all servers. A definition that servers share by name and
// content is there once; if contents differ, the later one gets another name. One server's
// part can be replaced without touching another's. Only one goroutine at a time may use a
// Merged.
type Merged struct {
	parts    map[string]*part
	variants map[string][]*variant // by name
}

// part is what one server adds.
type part struct {
	source *Document
	groups []string // of the server's, sorted
	paths  []byte   // members of a JSON object, without the braces
	hash   [32]byte
	uses   []*variant
}

// variant is one content of a shared name.
type variant struct {
	name      string   // its name in servers' documents
	published string   // its name in the merged document
	identity  [32]byte // hash of the content and of all that it points to
	body      []byte   // its own content, which points to published names
	users     int
}

// New returns the merged document of no servers.
func New() *Merged {
	return &Merged{parts: map[string]*part{}, variants: map[string][]*variant{}}
}

// Servers returns the servers that have a part.
func (m *Merged) Servers() []string { return slices.Collect(maps.Keys(m.parts)) }

// Set replaces the part of a server by those groups of a document that the server holds. A
// nil document removes the part. Set returns whether anything has changed.
func (m *Merged) Set(server string, doc *Document, groups []string) bool {
	old := m.parts[server]
	if old == nil && doc == nil || old != nil && old.source == doc && slices.Equal(old.groups, groups) {
		return false
	}
	if old != nil {
		for _, v := range old.uses {
			m.release(v)
		}
		delete(m.parts, server)
	}
	if doc != nil {
		m.parts[server] = m.add(doc, groups)
	}
	return true
}

func (m *Merged) release(v *variant) {
	if v.users--; v.users > 0 {
		return
	}
	if m.variants[v.name] = slices.DeleteFunc(m.variants[v.name], func(w *variant) bool { return w == v }); len(m.variants[v.name]) == 0 {
		delete(m.variants, v.name)
	}
}

func (m *Merged) add(doc *Document, groups []string) *part {
	p := &part{source: doc, groups: groups}
	var paths []string
	for path := range doc.paths {
		if group, ok := groupOfPath(path); ok && slices.Contains(groups, group) {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	graph := newGraph(doc.shared)
	needed := map[string]bool{}
	for _, path := range paths {
		graph.reach(doc.paths[path], needed)
	}
	names := map[string]string{}
	var fresh []*variant
	for _, name := range slices.Sorted(maps.Keys(needed)) {
		v, isNew := m.acquire(name, graph.identity(name))
		if isNew {
			fresh = append(fresh, v)
		}
		names[name] = v.published
		p.uses = append(p.uses, v)
	}
	for _, v := range fresh {
		v.body = rename(doc.shared[v.name], names)
	}
	var out bytes.Buffer
	for i, path := range paths {
		if i > 0 {
			out.WriteByte(',')
		}
		out.Write(quote(path))
		out.WriteByte(':')
		out.Write(rename(doc.paths[path], names))
	}
	p.paths = out.Bytes()
	p.hash = sha256.Sum256(p.paths)
	return p
}

// acquire finds the variant of a name with this identity, or makes it.
func (m *Merged) acquire(name string, identity [32]byte) (v *variant, fresh bool) {
	taken := map[string]bool{}
	for _, v := range m.variants[name] {
		if v.identity == identity {
			v.users++
			return v, false
		}
		taken[v.published] = true
	}
	published := name
	for n := 2; taken[published]; n++ {
		published = name + "_v" + strconv.Itoa(n)
	}
	v = &variant{name: name, published: published, identity: identity, users: 1}
	m.variants[name] = append(m.variants[name], v)
	return v, true
}

// groupOfPath returns the group that a path of OpenAPI is about.
func groupOfPath(path string) (string, bool) {
	if strings.HasPrefix(path, "/api/") {
		return "", true
	}
	rest, ok := strings.CutPrefix(path, "/apis/")
	group, _, _ := strings.Cut(rest, "/")
	return group, ok && group != ""
}

func rename(body []byte, names map[string]string) []byte {
	return reference.ReplaceAllFunc(body, func(ref []byte) []byte {
		parts := reference.FindSubmatch(ref)
		to, ok := names[string(parts[2])]
		if !ok || to == string(parts[2]) {
			return ref
		}
		return slices.Concat(parts[1], []byte(to), parts[3])
	})
}

func quote(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string
	}
	return b
}

// JSON returns the merged document, and its hash.
func (m *Merged) JSON(order []string) ([]byte, [32]byte) {
	var out bytes.Buffer
	sum := sha256.New()
	out.WriteString(`{"swagger":"2.0","info":{"title":"Kubernetes","version":"gateway"},"paths":{`)
	first := true
	for _, server := range order {
		p := m.parts[server]
		if p == nil || len(p.paths) == 0 {
			continue
		}
		if !first {
			out.WriteByte(',')
		}
		first = false
		out.Write(p.paths)
		sum.Write(p.hash[:])
	}
	out.WriteByte('}')
	for _, kind := range []string{"definitions", "parameters"} {
		fmt.Fprintf(&out, `,%q:{`, kind)
		first := true
		for _, name := range slices.Sorted(maps.Keys(m.variants)) {
			if !strings.HasPrefix(name, kind) {
				continue
			}
			for _, v := range m.variants[name] {
				if !first {
					out.WriteByte(',')
				}
				first = false
				out.Write(quote(strings.TrimPrefix(v.published, kind+"/")))
				out.WriteByte(':')
				out.Write(v.body)
				sum.Write(v.identity[:])
				sum.Write([]byte(v.published))
			}
		}
		out.WriteByte('}')
	}
	for _, server := range order {
		if p := m.parts[server]; p != nil && len(p.source.extras) > 0 {
			for _, name := range slices.Sorted(maps.Keys(p.source.extras)) {
				fmt.Fprintf(&out, `,%q:%s`, name, p.source.extras[name])
			}
			break
		}
	}
	out.WriteByte('}')
	return out.Bytes(), [32]byte(sum.Sum(nil))
}

// graph holds the pointers between the shared definitions and parameters of a document.
type graph struct {
	shared map[string]json.RawMessage
	points map[string][]string // by name, the names that it points to; filled when asked for
	sums   map[string][32]byte // by name, the hash of its own content; filled when asked for

	identities map[string][32]byte // filled when asked for
	walk       map[string]*walked  // only visit uses it
	stack      []string            // only visit uses it
}

func newGraph(shared map[string]json.RawMessage) *graph {
	return &graph{shared: shared, points: map[string][]string{}, sums: map[string][32]byte{}, identities: map[string][32]byte{}, walk: map[string]*walked{}}
}

// reach adds to a set the names that a body points to, directly or not.
func (g *graph) reach(body []byte, into map[string]bool) {
	var todo []string
	for _, ref := range reference.FindAllSubmatch(body, -1) {
		todo = append(todo, string(ref[2]))
	}
	for len(todo) > 0 {
		name := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if _, ok := g.shared[name]; !ok || into[name] {
			continue
		}
		into[name] = true
		todo = append(todo, g.pointsTo(name)...)
	}
}

func (g *graph) pointsTo(name string) []string {
	to, ok := g.points[name]
	if !ok {
		for _, ref := range reference.FindAllSubmatch(g.shared[name], -1) {
			to = append(to, string(ref[2]))
		}
		g.points[name] = to
	}
	return to
}

// identity returns a hash of a definition and of all that it points to. If two servers'
// definitions have the same identity, one of them can stand for both.
func (g *graph) identity(name string) [32]byte {
	if _, ok := g.identities[name]; !ok {
		g.visit(name)
	}
	return g.identities[name]
}

// walked is the state of a name in Tarjan's walk of the graph.
type walked struct {
	index, low int
	open       bool // on the stack: its component is not complete
}

// visit finds the identities of a name and of all names that it leads to. Names that lead to
// each other form a component. Its hash is made of their contents, and of the identities
// that the component points to. The time is proportional to the document's size, however
// long its chains are.
func (g *graph) visit(name string) *walked {
	w := &walked{index: len(g.walk), low: len(g.walk), open: true}
	g.walk[name] = w
	g.stack = append(g.stack, name)
	for _, to := range g.pointsTo(name) {
		if _, ok := g.shared[to]; !ok {
			continue
		}
		switch next := g.walk[to]; {
		case next == nil:
			w.low = min(w.low, g.visit(to).low)
		case next.open:
			w.low = min(w.low, next.index)
		}
	}
	if w.low == w.index {
		at := len(g.stack) - 1
		for g.stack[at] != name {
			at--
		}
		g.settle(slices.Clone(g.stack[at:]))
		g.stack = g.stack[:at]
	}
	return w
}

// settle gives the members of a component their identities.
func (g *graph) settle(members []string) {
	slices.Sort(members)
	sum := sha256.New()
	beyond := map[[32]byte]bool{}
	for _, m := range members {
		g.walk[m].open = false
		own := g.sum(m)
		sum.Write([]byte(m))
		sum.Write(own[:])
		for _, to := range g.pointsTo(m) {
			if id, known := g.identities[to]; known {
				beyond[id] = true
			}
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(beyond), func(a, b [32]byte) int { return bytes.Compare(a[:], b[:]) }) {
		sum.Write(id[:])
	}
	component := sum.Sum(nil)
	for _, m := range members {
		g.identities[m] = sha256.Sum256(append([]byte(m+"\x00"), component...))
	}
}

func (g *graph) sum(name string) [32]byte {
	if s, ok := g.sums[name]; ok {
		return s
	}
	s := sha256.Sum256(withoutKinds(g.shared[name]))
	g.sums[name] = s
	return s
}

// withoutKinds removes the list of kinds from a definition such as DeleteOptions. The list
// holds all kinds of its server, and so differs between servers.
func withoutKinds(body []byte) []byte {
	const field = "x-kubernetes-group-version-kind"
	if !bytes.Contains(body, []byte(field)) {
		return body
	}
	var fields map[string]json.RawMessage
	var kinds []json.RawMessage
	if json.Unmarshal(body, &fields) != nil || json.Unmarshal(fields[field], &kinds) != nil || len(kinds) < 2 {
		return body
	}
	delete(fields, field)
	out, err := json.Marshal(fields)
	if err != nil {
		return body
	}
	return out
}
