package clusterset

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// PublicationName is the name of a Service's publication.
func PublicationName(service types.NamespacedName) string {
	return Clip(service.Name) + "-" + Digest(service.Namespace, service.Name)
}

// Clip shortens a name so that a digest and a number can follow it within 63
// characters.
func Clip(name string) string {
	return strings.TrimRight(name[:min(len(name), 40)], "-.")
}

// Digest returns ten characters that differ for different parts, and are the same in
// every cluster. They make names unique.
func Digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(h.Sum(nil)))[:10]
}
