package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// finalizerPrefix begins the finalizers that the gateway puts on namespaces.
const finalizerPrefix = "aggregation.xbernetes.io/"

// FinalizerFor is the name among a namespace's spec.finalizers that says that
// the server may hold something in it. A server's name of more than 63
// characters, which a finalizer cannot hold, is cut, and told from others by a
// hash.
func FinalizerFor(server string) string {
	const most, tail = 63, 16
	if len(server) > most {
		sum := sha256.Sum256([]byte(server))
		server = strings.TrimRight(server[:most-tail-1], "-.") + "-" + hex.EncodeToString(sum[:tail/2])
	}
	return finalizerPrefix + server
}
