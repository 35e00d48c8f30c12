package canonical

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"sigs.k8s.io/yaml"
)

// Object holds what the policies need of the object in a body.
type Object struct {
	APIVersion, Kind              string
	Name, Namespace, GenerateName string

	// resources is the JSON of spec.resources; nil if there is none.
	resources []byte
	opaque    bool   // the body cannot be looked into further
	unset     string // a field of the above that is null
}

// Quantities are the resources that an object asks for, in the place where Kubernetes' own
// kinds (a container, a volume claim) name them.
type Quantities struct {
	Requests map[string]resource.Quantity
	Limits   map[string]resource.Quantity
}

// errOpaque says that a body's quantities cannot be read.
var errOpaque = errors.New("its spec is protobuf")

// errList says that Kubernetes' own client would take a body for a list, whatever its kind.
var errList = errors.New("it has items, as a list does: send each as an object of its own")

// Quantities returns the quantities of spec.resources. It fails if they cannot be read.
func (o *Object) Quantities() (Quantities, error) {
	if o.opaque {
		return Quantities{}, errOpaque
	}
	parts, err := fields(o.resources, "requests", "limits")
	if err != nil {
		return Quantities{}, fmt.Errorf("spec.resources %w", err)
	}
	requests, err := quantities(parts["requests"])
	if err != nil {
		return Quantities{}, fmt.Errorf("spec.resources.requests %w", err)
	}
	limits, err := quantities(parts["limits"])
	if err != nil {
		return Quantities{}, fmt.Errorf("spec.resources.limits %w", err)
	}
	return Quantities{requests, limits}, nil
}

func quantities(text []byte) (map[string]resource.Quantity, error) {
	found := map[string]resource.Quantity{}
	err := each(text, func(key string, value json.RawMessage) error {
		if _, again := found[key]; again {
			return fmt.Errorf("has %q twice", key)
		}
		var q resource.Quantity
		if err := q.UnmarshalJSON(value); err != nil {
			return fmt.Errorf("of %q: %w", key, err)
		}
		found[key] = q
		return nil
	})
	return found, err
}

// yamlTurns bounds how many bodies are parsed as YAML at once.
var yamlTurns = make(chan struct{}, yamlMost)

// readObject reads the object in the body, refuses it if the path names another one, and
// returns the body to send.
func readObject(q *Request, body []byte) (Object, []byte, error) {
	o, body, err := parse(q.MediaType, body)
	if err == nil {
		err = q.check(o)
	}
	if status := (apierrors.APIStatus)(nil); err != nil && !errors.As(err, &status) {
		err = bad("the body: %v", err)
	}
	return o, body, err
}

func parse(mediaType string, body []byte) (Object, []byte, error) {
	var o Object
	var err error
	switch mediaType {
	case jsonPatch:
		return Object{opaque: true}, body, checkOperations(body)
	case protobufType:
		o, err = parseProtobuf(body)
	case cborType, applyCBOR:
		o, err = parseCBOR(body)
	case yamlType, applyYAML:
		if body, err = toJSON(body); err == nil {
			o, err = parseJSON(body)
		}
	case mergePatch, strategic:
		if o, err = parseJSON(body); err == nil && o.unset != "" {
			err = fmt.Errorf("unsets %s, which says what object it is", o.unset)
		}
	default:
		o, err = parseJSON(body)
	}
	return o, body, err
}

// toJSON turns YAML into JSON, by the function that Kubernetes itself uses. Of several
// documents Kubernetes reads the first, so only that one is sent.
func toJSON(body []byte) ([]byte, error) {
	if json.Valid(body) {
		return body, nil
	}
	if len(body) > parsedMost {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the object takes more than %d bytes as YAML: send it as JSON", parsedMost))
	}
	yamlTurns <- struct{}{}
	defer func() { <-yamlTurns }()
	text, err := yaml.YAMLToJSONStrict(body)
	if err == nil && len(text) > bodyMost {
		err = apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the object takes more than %d bytes", bodyMost))
	}
	return text, err
}

func parseJSON(body []byte) (Object, error) {
	top, err := fields(body, "apiVersion", "kind", "metadata", "spec", "items")
	if err != nil {
		return Object{}, err
	}
	if len(top["items"]) > 0 && top["items"][0] == '[' {
		return Object{}, errList
	}
	meta, err := fields(top["metadata"], "name", "namespace", "generateName")
	if err != nil {
		return Object{}, fmt.Errorf("metadata %w", err)
	}
	var o Object
	if string(top["metadata"]) == "null" {
		o.unset = "metadata"
	}
	for _, f := range []struct {
		to   *string
		from json.RawMessage
		name string
	}{
		{&o.APIVersion, top["apiVersion"], "apiVersion"}, {&o.Kind, top["kind"], "kind"}, {&o.Name, meta["name"], "metadata.name"},
		{&o.Namespace, meta["namespace"], "metadata.namespace"}, {&o.GenerateName, meta["generateName"], "metadata.generateName"},
	} {
		switch {
		case f.from == nil:
			continue
		case string(f.from) == "null":
			o.unset = f.name
			continue
		case f.from[0] != '"':
			return o, fmt.Errorf("%s is no text", f.name)
		}
		if err := json.Unmarshal(f.from, f.to); err != nil {
			return o, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	// A kind's spec need not be an object, nor have resources.
	if spec := top["spec"]; len(spec) > 0 && spec[0] == '{' {
		inner, err := fields(spec, "resources")
		if err != nil {
			return o, fmt.Errorf("spec %w", err)
		}
		if r := inner["resources"]; len(r) > 0 {
			o.resources = slices.Clone(r)
		}
	}
	return o, nil
}

// fields returns the values of some fields of a JSON object; nil for a field that is missing.
// text may be nil or null, for an object without fields. If the object has one of the fields
// twice, also in other letters, fields returns an error, because parsers differ in which of
// the two they take.
func fields(text []byte, names ...string) (map[string]json.RawMessage, error) {
	found := map[string]json.RawMessage{}
	return found, each(text, func(key string, value json.RawMessage) error {
		at := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, key) })
		switch {
		case at < 0:
			return nil
		case names[at] != key:
			return fmt.Errorf("has a field %q, which some take for %s: leave it out", key, names[at])
		case found[key] != nil:
			return fmt.Errorf("has %s twice", key)
		}
		found[key] = slices.Clone(value)
		return nil
	})
}

// each calls f with every field of a JSON object, holding one value at a time.
func each(text []byte, f func(key string, value json.RawMessage) error) error {
	if text == nil || string(text) == "null" {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("is no object")
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return err
		}
		if err := f(key.(string), value); err != nil { // keys are texts
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("has something after its end")
	}
	return nil
}

// parseCBOR reads CBOR with Kubernetes' own decoder, which refuses a key that comes twice.
func parseCBOR(body []byte) (Object, error) {
	if len(body) > parsedMost {
		return Object{}, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the object takes more than %d bytes as CBOR: send it as JSON", parsedMost))
	}
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct {
			Name         string `json:"name"`
			Namespace    string `json:"namespace"`
			GenerateName string `json:"generateName"`
		} `json:"metadata"`
		Spec  any `json:"spec"`
		Items any `json:"items"`
	}
	if err := direct.Unmarshal(body, &head); err != nil {
		return Object{}, err
	}
	if _, list := head.Items.([]any); list {
		return Object{}, errList
	}
	o := Object{APIVersion: head.APIVersion, Kind: head.Kind, Name: head.Metadata.Name, Namespace: head.Metadata.Namespace, GenerateName: head.Metadata.GenerateName}
	if spec, ok := head.Spec.(map[string]any); ok && spec["resources"] != nil {
		text, err := json.Marshal(spec["resources"])
		if err != nil {
			return o, err
		}
		o.resources = text
	}
	return o, nil
}

var protobufPrefix = []byte("k8s\x00")

// parseProtobuf reads the envelope, and the metadata, which is field 1 of every
// kind of Kubernetes.
func parseProtobuf(body []byte) (Object, error) {
	raw, ok := bytes.CutPrefix(body, protobufPrefix)
	if !ok {
		return Object{}, errors.New("it does not begin as Kubernetes' protobuf does")
	}
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(raw); err != nil {
		return Object{}, err
	}
	if envelope.ContentEncoding != "" || envelope.ContentType != "" && envelope.ContentType != protobufType {
		return Object{}, errors.New("its envelope says that it is encoded, or no protobuf")
	}
	var o metav1.PartialObjectMetadata
	if err := o.Unmarshal(envelope.Raw); err != nil {
		return Object{}, err
	}
	return Object{APIVersion: envelope.APIVersion, Kind: envelope.Kind, Name: o.Name, Namespace: o.Namespace, GenerateName: o.GenerateName, opaque: true}, nil
}

// check compares the body's object with the path and with discovery.
func (q *Request) check(o Object) error {
	if q.MediaType == jsonPatch {
		return nil
	}
	whole := q.MediaType != mergePatch && q.MediaType != strategic
	version, kind := q.Kind.GroupVersion().String(), q.Kind.Kind
	switch {
	case (whole || o.APIVersion != "") && o.APIVersion != version, (whole || o.Kind != "") && o.Kind != kind:
		return bad("the body says apiVersion %.100q and kind %.100q; %s are of apiVersion %q and kind %q: say that",
			o.APIVersion, o.Kind, q.Info.Resource, version, kind)
	case o.Namespace != "" && o.Namespace != q.namespace():
		return bad("the body says namespace %.100q, and the path %q", o.Namespace, q.namespace())
	case q.Info.Verb != "create" && o.Name != "" && o.Name != q.Info.Name:
		return bad("the body says name %.100q, and the path %q", o.Name, q.Info.Name)
	case o.Name != "" && len(content.IsPathSegmentName(o.Name)) > 0:
		return bad("%.100q is no name", o.Name)
	case len(content.IsPathSegmentPrefix(o.GenerateName)) > 0:
		return bad("%.100q is no beginning of a name", o.GenerateName)
	}
	return nil
}

// namespace returns the object's namespace.
func (q *Request) namespace() string {
	if !q.Kind.Namespaced {
		return ""
	}
	return q.Info.Namespace
}

// operationsMost is how many operations Kubernetes takes in a JSON patch.
const operationsMost = 10_000

// identity are the parts of an object that say which object it is.
var identity = []string{"", "/apiVersion", "/kind", "/metadata", "/metadata/name", "/metadata/namespace"}

// checkOperations refuses a JSON patch that may change which object it is.
func checkOperations(body []byte) error {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return errors.New("a JSON patch is a list of operations")
	}
	for n := 0; d.More(); n++ {
		if n == operationsMost {
			return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the patch has more than %d operations", operationsMost))
		}
		var one json.RawMessage
		if err := d.Decode(&one); err != nil {
			return err
		}
		if err := checkOperation(one); err != nil {
			return fmt.Errorf("operation %d %w", n, err)
		}
	}
	if _, err := d.Token(); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("there is something after the patch's end")
	}
	return nil
}

func checkOperation(text []byte) error {
	given, err := fields(text, "op", "path", "from")
	if err != nil {
		return err
	}
	var op, to, from string
	for _, f := range []struct {
		to   *string
		from json.RawMessage
	}{{&op, given["op"]}, {&to, given["path"]}, {&from, given["from"]}} {
		if f.from == nil {
			continue
		}
		if err := json.Unmarshal(f.from, f.to); err != nil {
			return err
		}
	}
	if op != "test" && given["path"] != nil && identifies(to) || op == "move" && identifies(from) {
		return fmt.Errorf("changes %q, which says what object it is: change single fields of the metadata", to)
	}
	return nil
}

// identifies says whether a JSON pointer leads to a part of the object that says which object
// it is. It ignores case, as some servers do.
func identifies(pointer string) bool {
	plain := strings.NewReplacer("~1", "/", "~0", "~").Replace(strings.TrimRight(pointer, "/"))
	return slices.ContainsFunc(identity, func(part string) bool { return strings.EqualFold(part, plain) })
}
