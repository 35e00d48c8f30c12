package controlplane

import (
	"bytes"
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	registryPrefix = "/registry/"
	// encryptedPrefix is what the API server puts before each value that it encrypts.
	encryptedPrefix = "k8s:enc:"
	// encryptedSample is how many objects of each kind are read, because some may
	// have been written before encryption began.
	encryptedSample = 100
)

// refuseEncrypted returns an error, which names the flag, if the store holds
// encrypted objects. A server without keys cannot read them: it would report an
// error for each again and again, and could list none of their kind.
func refuseEncrypted(ctx context.Context, etcd *clientv3.Client) error {
	from, end := registryPrefix, clientv3.GetPrefixRangeEnd(registryPrefix)
	for {
		page, err := etcd.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(encryptedSample), clientv3.WithSerializable())
		if err != nil {
			return nil //nolint:nilerr // later requests wait for a store that is away for a moment
		}
		if len(page.Kvs) == 0 {
			return nil
		}
		kind := kindPrefix(page.Kvs[0].Key)
		for _, kv := range page.Kvs {
			if bytes.HasPrefix(kv.Key, kind) && bytes.HasPrefix(kv.Value, []byte(encryptedPrefix)) {
				return fmt.Errorf("the journal holds encrypted objects (%s), and this server has no keys; give it the file that the other servers have, with --encryption-provider-config", kv.Key)
			}
		}
		from = clientv3.GetPrefixRangeEnd(string(kind))
	}
}

// kindPrefix is the part of a key that all objects of its kind, or of its
// group, begin with.
func kindPrefix(key []byte) []byte {
	rest := key[len(registryPrefix):]
	if i := bytes.IndexByte(rest, '/'); i >= 0 {
		return key[:len(registryPrefix)+i+1]
	}
	return key
}
