package model

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// PublicationName is the name of a Service's publication.
func PublicationName(service types.NamespacedName) string {
	return clip(service.Name) + "-" + digest(service.Namespace, service.Name)
}

// DerivedName is the name of the Service that gives a ServiceImport its address.
func DerivedName(service types.NamespacedName) string {
	return "derived-" + digest(service.Namespace, service.Name)
}

// clip leaves room for a digest and a number in a name of 63 characters.
func clip(name string) string {
	return strings.TrimRight(name[:min(len(name), 40)], "-.")
}

// digest is what makes a name its own: ten characters, the same everywhere.
func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(h.Sum(nil)))[:10]
}
