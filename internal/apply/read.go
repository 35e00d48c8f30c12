package apply

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
)

// maxManifest bounds what one file may hold, in bytes: more than a transaction may have.
const maxManifest = 4 << 20

// object is one manifest, and where its kind is served.
type object struct {
	*unstructured.Unstructured
	mapping *meta.RESTMapping
}

func (o object) kind() schema.GroupKind { return o.mapping.GroupVersionKind.GroupKind() }

func (o object) namespaced() bool { return o.mapping.Scope.Name() == meta.RESTScopeNameNamespace }

// in returns the client of the object's kind, in its namespace.
func (o object) in(api dynamic.Interface) dynamic.ResourceInterface {
	if o.namespaced() {
		return api.Resource(o.mapping.Resource).Namespace(o.GetNamespace())
	}
	return api.Resource(o.mapping.Resource)
}

// read returns the objects of the files, namespaces first, each in the namespace given if
// it says none.
func read(o Options, to Server) ([]object, error) {
	files, err := filesOf(o)
	if err != nil {
		return nil, err
	}
	var all []object
	for _, file := range files {
		manifests, err := manifestsOf(file, o.In)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		for _, m := range manifests {
			placed, err := place(m, to)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			all = append(all, placed)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("the files hold no objects")
	}
	slices.SortStableFunc(all, func(a, b object) int { return a.rank() - b.rank() })
	return all, nil
}

// rank puts namespaces before what may be in them.
func (o object) rank() int {
	if o.kind() == (schema.GroupKind{Kind: "Namespace"}) {
		return 0
	}
	return 1
}

// filesOf names the files that are meant.
func filesOf(o Options) (files []string, err error) {
	for _, name := range o.Files {
		info, err := os.Stat(name)
		switch {
		case name == "-":
			files = append(files, name)
			continue
		case err != nil:
			return nil, err
		case !info.IsDir():
			files = append(files, name)
			continue
		}
		err = filepath.WalkDir(name, func(path string, d fs.DirEntry, err error) error {
			if d != nil && d.IsDir() && path != name && !o.Recursive {
				return fs.SkipDir
			}
			if ext := filepath.Ext(path); err == nil && !d.IsDir() && (ext == ".yaml" || ext == ".yml" || ext == ".json") {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

// manifestsOf returns the objects of one file; those of lists one by one.
func manifestsOf(file string, in io.Reader) (all []*unstructured.Unstructured, err error) {
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxManifest+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxManifest {
		return nil, fmt.Errorf("it has more than %d MiB", maxManifest>>20)
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		u := &unstructured.Unstructured{}
		err := decoder.Decode(&u.Object)
		switch {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		case len(u.Object) == 0: // only comments
			continue
		case !u.IsList():
			all = append(all, u)
			continue
		}
		if err := u.EachListItem(func(item runtime.Object) error {
			all = append(all, item.(*unstructured.Unstructured))
			return nil
		}); err != nil {
			return nil, err
		}
	}
}

// place finds where an object's kind is served, and which namespace it goes to.
func place(u *unstructured.Unstructured, to Server) (object, error) {
	kind := u.GroupVersionKind()
	if kind.Version == "" || kind.Kind == "" {
		return object{}, errors.New("an object has no apiVersion or no kind")
	}
	if u.GetName() == "" {
		return object{}, fmt.Errorf("a %s has no metadata.name", kind.Kind)
	}
	mapping, err := to.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return object{}, fmt.Errorf("%s %q: the server serves no kind %s in %s", kind.Kind, u.GetName(), kind.Kind, kind.GroupVersion())
	}
	if err != nil {
		return object{}, fmt.Errorf("ask the server which kinds it serves: %w", err)
	}
	o := object{Unstructured: u, mapping: mapping}
	switch {
	case !o.namespaced():
		u.SetNamespace(metav1.NamespaceNone)
	case u.GetNamespace() == "":
		u.SetNamespace(to.Namespace)
	}
	return o, nil
}
