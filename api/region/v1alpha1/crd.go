package v1alpha1

import "embed"

//go:embed *.yaml
var crds embed.FS

// CRDs are the CustomResourceDefinitions of this group, each a YAML document.
func CRDs() [][]byte {
	entries, err := crds.ReadDir(".")
	if err != nil {
		panic(err) // embedded
	}
	var docs [][]byte
	for _, entry := range entries {
		doc, err := crds.ReadFile(entry.Name())
		if err != nil {
			panic(err) // embedded
		}
		docs = append(docs, doc)
	}
	return docs
}
