package controlplane

import (
	"context"
	"crypto/x509"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/xbernetes/xbernetes/internal/controlplane/roster"
)

// clientCAs are the CAs whose client certificates this server accepts: those of
// all servers in the roster.
type clientCAs struct{ *roster.Roster }

var _ dynamiccertificates.CAContentProvider = clientCAs{}

func (clientCAs) Name() string                                 { return "xbernetes-roster" }
func (c clientCAs) AddListener(l dynamiccertificates.Listener) { c.Listen(l.Enqueue) }
func (c clientCAs) CurrentCABundleContent() []byte             { t, _ := c.Current(); return t.Bundle }
func (c clientCAs) VerifyOptions() (opts x509.VerifyOptions, ok bool) {
	t, _ := c.Current()
	return x509.VerifyOptions{Roots: t.Roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, true
}

// tokenKeys are the keys that verify service-account tokens: those of all servers
// in the roster.
type tokenKeys struct{ *roster.Roster }

var _ serviceaccount.PublicKeysGetter = tokenKeys{}

func (k tokenKeys) AddListener(l serviceaccount.Listener) { k.Listen(l.Enqueue) }

// GetCacheAgeMaxSeconds is short, because a server that joins signs at once.
func (tokenKeys) GetCacheAgeMaxSeconds() int { return 60 }

// GetPublicKeys returns the keys with that id, or all if it is empty.
func (k tokenKeys) GetPublicKeys(ctx context.Context, id string) []serviceaccount.PublicKey {
	found := k.all()
	if id != "" {
		found = k.Find(ctx, id)
	}
	keys := make([]serviceaccount.PublicKey, 0, len(found))
	for _, key := range found {
		keys = append(keys, serviceaccount.PublicKey{KeyID: key.ID, PublicKey: key.Public})
	}
	return keys
}

func (k tokenKeys) all() []roster.Key {
	t, _ := k.Current()
	return t.Keys
}
