package controlplane

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

// rosterPrefix is where the servers of a store publish what the others need to
// trust them. It lies outside of the prefix of Kubernetes objects, so that no
// request to the Kubernetes API can write it.
const rosterPrefix = "/xbernetes/servers/"

// joinTimeout bounds one attempt to reach the store at a start.
const joinTimeout = 5 * time.Second

// member is what one server publishes: nothing in it is secret.
type member struct {
	// CA is the certificate, PEM, that signs the server's serving and client certificates.
	CA []byte `json:"ca"`
	// ServiceAccountKeys are public keys, PEM, that verify the tokens it issues.
	ServiceAccountKeys [][]byte `json:"serviceAccountKeys"`
}

// decodeMember refuses whatever could not serve as a trust anchor.
func decodeMember(b []byte) (member, error) {
	var m member
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("decode member: %w", err)
	}
	if _, err := parseCertificate(m.CA); err != nil {
		return m, fmt.Errorf("decode member CA: %w", err)
	}
	for _, k := range m.ServiceAccountKeys {
		if _, err := parsePublicKey(k); err != nil {
			return m, fmt.Errorf("decode member service-account key: %w", err)
		}
	}
	return m, nil
}

func parseCertificate(b []byte) (*x509.Certificate, error) {
	block, rest := pem.Decode(b)
	if block == nil || block.Type != "CERTIFICATE" || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("not one PEM certificate")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	if !cert.IsCA {
		return nil, errors.New("not a CA")
	}
	return cert, nil
}

func parsePublicKey(b []byte) (serviceaccount.PublicKey, error) {
	block, _ := pem.Decode(b)
	if block == nil || block.Type != "PUBLIC KEY" {
		return serviceaccount.PublicKey{}, errors.New("not a PEM public key")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return serviceaccount.PublicKey{}, err
	}
	// The id that k8s.io/kubernetes/pkg/serviceaccount puts in a token's header.
	sum := sha256.Sum256(block.Bytes)
	return serviceaccount.PublicKey{PublicKey: key, KeyID: base64.RawURLEncoding.EncodeToString(sum[:])}, nil
}

// trust is what the servers on one store trust, at one moment. Immutable.
type trust struct {
	bundle []byte // every CA, PEM, by server id
	roots  *x509.CertPool
	keys   []serviceaccount.PublicKey
}

// roster keeps this server's member record in the store, and follows everybody's.
type roster struct {
	client *clientv3.Client
	log    *slog.Logger
	id     string
	self   member

	mu        sync.Mutex
	revision  int64             // of the store, that members reflects
	members   map[string]member // by server id
	trust     *trust
	changed   chan struct{} // closed and replaced when trust changes
	listeners []func()
	asked     time.Time // when a token's unknown key last made us read the store
}

func newRoster(client *clientv3.Client, id *identity, log *slog.Logger) *roster {
	r := &roster{
		client:  client,
		log:     log,
		id:      id.id,
		self:    member{CA: id.ca.CertPEM, ServiceAccountKeys: [][]byte{id.serviceAccountPub}},
		changed: make(chan struct{}),
	}
	r.set(0, nil)
	return r
}

// join reads the roster and enters this server in it, retrying until the store
// answers or ctx ends. A server that is entered already writes nothing.
func (r *roster) join(ctx context.Context, store string) error {
	for wait := 250 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := r.tryJoin(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("enter server in roster: %w", err)
		}
		r.log.Warn("the store does not answer; trying again", "store", store, "after", wait, "error", err)
		select {
		case <-ctx.Done():
			return fmt.Errorf("enter server in roster: %w", err)
		case <-time.After(wait):
		}
	}
}

func (r *roster) tryJoin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	want, err := json.Marshal(r.self)
	if err != nil {
		return err
	}
	key := rosterPrefix + r.id
	for range 3 {
		own, err := r.refresh(ctx)
		if err != nil {
			return err
		}
		var have int64
		if own != nil {
			if bytes.Equal(own.Value, want) {
				return nil
			}
			have = own.ModRevision
		}
		// A write that got lost on the way is seen by the next round's read.
		resp, err := r.client.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(key), "=", have)).
			Then(clientv3.OpPut(key, string(want))).Commit()
		if err != nil {
			return err
		}
		if resp.Succeeded {
			_, err := r.refresh(ctx)
			return err
		}
	}
	return fmt.Errorf("another server writes the roster entry %q too: give each server an id of its own", r.id)
}

// entry is a key of the roster as the store holds it.
type entry struct {
	Value       []byte
	ModRevision int64
}

// refresh reads the whole roster, and returns this server's entry, nil if there is none.
func (r *roster) refresh(ctx context.Context) (*entry, error) {
	resp, err := r.client.Get(ctx, rosterPrefix, clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	var own *entry
	members := map[string]member{}
	for _, kv := range resp.Kvs {
		id := strings.TrimPrefix(string(kv.Key), rosterPrefix)
		if id == r.id {
			own = &entry{kv.Value, kv.ModRevision}
		}
		r.put(members, id, kv.Value)
	}
	r.set(resp.Header.Revision, members)
	return own, nil
}

func (r *roster) put(members map[string]member, id string, value []byte) {
	m, err := decodeMember(value)
	if err != nil {
		r.log.Error("ignoring a server in the roster: its entry is corrupt; delete the key", "key", rosterPrefix+id, "error", err)
		delete(members, id)
		return
	}
	members[id] = m
}

// Run follows the roster until ctx ends.
func (r *roster) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := r.follow(ctx)
		if ctx.Err() != nil {
			break
		}
		r.log.Debug("roster watch ended; starting over", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
		if _, err := r.refresh(ctx); err != nil {
			r.log.Debug("cannot read the roster", "error", err)
		}
	}
	return nil
}

func (r *roster) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.mu.Lock()
	from := r.revision + 1
	r.mu.Unlock()
	for resp := range r.client.Watch(ctx, rosterPrefix, clientv3.WithPrefix(), clientv3.WithRev(from)) {
		if err := resp.Err(); err != nil {
			return err
		}
		r.apply(resp)
	}
	return nil
}

// apply takes in those events that are newer than what a refresh has seen. An
// event's own revision counts: the header's may be ahead of it.
func (r *roster) apply(resp clientv3.WatchResponse) {
	r.mu.Lock()
	revision, members := r.revision, maps.Clone(r.members)
	r.mu.Unlock()
	if members == nil {
		members = map[string]member{}
	}
	seen := revision
	for _, ev := range resp.Events {
		if ev.Kv.ModRevision <= seen {
			continue
		}
		revision = ev.Kv.ModRevision
		id := strings.TrimPrefix(string(ev.Kv.Key), rosterPrefix)
		if ev.Type == clientv3.EventTypeDelete {
			delete(members, id)
		} else {
			r.put(members, id, ev.Kv.Value)
		}
	}
	if revision > seen {
		r.set(revision, members)
	}
}

// set installs members unless something newer is there, and tells the listeners.
func (r *roster) set(revision int64, members map[string]member) {
	r.mu.Lock()
	if r.trust != nil && revision < r.revision {
		r.mu.Unlock()
		return
	}
	t := newTrust(r.id, r.self, members)
	same := r.trust != nil && bytes.Equal(t.bundle, r.trust.bundle) && sameKeys(t.keys, r.trust.keys)
	r.revision, r.members = revision, members
	if same {
		r.mu.Unlock()
		return
	}
	r.trust = t
	close(r.changed)
	r.changed = make(chan struct{})
	listeners := append([]func(){}, r.listeners...)
	r.mu.Unlock()
	for _, f := range listeners {
		f()
	}
}

// current returns what to trust now, and a channel that closes when that changes.
func (r *roster) current() (*trust, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.trust, r.changed
}

func (r *roster) listen(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listeners = append(r.listeners, f)
}

// clientCAs are the CAs whose client certificates this server accepts.
func (r *roster) clientCAs() dynamiccertificates.CAContentProvider { return rosterCAs{r} }

type rosterCAs struct{ *roster }

func (rosterCAs) Name() string                                 { return "xbernetes-roster" }
func (c rosterCAs) AddListener(l dynamiccertificates.Listener) { c.listen(l.Enqueue) }
func (c rosterCAs) CurrentCABundleContent() []byte             { t, _ := c.current(); return t.bundle }
func (c rosterCAs) VerifyOptions() (opts x509.VerifyOptions, ok bool) {
	t, _ := c.current()
	return x509.VerifyOptions{Roots: t.roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, true
}

// tokenKeys are the keys that verify service-account tokens.
func (r *roster) tokenKeys() serviceaccount.PublicKeysGetter { return rosterKeys{r} }

type rosterKeys struct{ *roster }

func (k rosterKeys) AddListener(l serviceaccount.Listener) { k.listen(l.Enqueue) }

// GetCacheAgeMaxSeconds is short: a server that joins signs at once.
func (rosterKeys) GetCacheAgeMaxSeconds() int { return 60 }

// GetPublicKeys returns the keys with that id, or all. A key that nobody has
// published yet may belong to a server that joined a moment ago, whose entry the
// watch has not brought: then the store is read, once a second at most.
func (k rosterKeys) GetPublicKeys(ctx context.Context, id string) []serviceaccount.PublicKey {
	t, _ := k.current()
	if id == "" {
		return t.keys
	}
	if found := t.find(id); len(found) > 0 || !k.mayAsk() {
		return found
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := k.refresh(ctx); err != nil {
		k.log.Warn("cannot look up the key of a service-account token", "key", id, "error", err)
	}
	t, _ = k.current()
	return t.find(id)
}

func (r *roster) mayAsk() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.asked) < time.Second {
		return false
	}
	r.asked = time.Now()
	return true
}

func (t *trust) find(id string) []serviceaccount.PublicKey {
	for _, k := range t.keys {
		if k.KeyID == id {
			return []serviceaccount.PublicKey{k}
		}
	}
	return nil
}
