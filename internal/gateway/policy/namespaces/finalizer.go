package namespaces

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// finalizerPrefix begins the finalizers that the gateway puts on namespaces.
const finalizerPrefix = "aggregation.xbernetes.io/"

// Finalizer is the name among a namespace's spec.finalizers which says that the
// server may hold something in it. A finalizer cannot hold more than 63 characters
// of a server's name: a longer name is cut, and ends with a hash of the whole.
func Finalizer(server string) string {
	const most, tail = 63, 16
	if len(server) > most {
		sum := sha256.Sum256([]byte(server))
		server = strings.TrimRight(server[:most-tail-1], "-.") + "-" + hex.EncodeToString(sum[:tail/2])
	}
	return finalizerPrefix + server
}
