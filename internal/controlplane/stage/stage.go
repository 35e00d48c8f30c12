// Package stage holds what one transaction has read and would write, until a single
// request to the store writes all of it or nothing. It knows keys and values, and
// neither kinds nor the API.
package stage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"
)

const (
	// MaxKeys is how many keys a transaction may touch: what one etcd request has
	// conditions for, but for one.
	MaxKeys = 127
	// MaxBytes is how many bytes of keys and values a transaction may write: what one
	// etcd request holds, but for what surrounds them.
	MaxBytes = 1<<20 + 256<<10
)

var (
	// ErrConflict is returned by Commit if another client has changed what the
	// transaction has read. Nothing was written.
	ErrConflict = errors.New("what the transaction has read was changed meanwhile")
	// ErrTooLarge is returned for a read or write that the transaction has no room for.
	ErrTooLarge = fmt.Errorf("the transaction touches more than %d objects, or writes more than %d bytes", MaxKeys, MaxBytes)
	// ErrExpires is returned for a value that a lease would delete.
	ErrExpires = errors.New("what expires by itself cannot be part of a transaction")
	// ErrOver is returned for a read or write after End.
	ErrOver = errors.New("the transaction is over")
)

// provisional is the first of the revisions that staged values have until they are
// written. No store ever gets that far.
const provisional = 1 << 62

// Provisional says whether revision is that of a staged value; Txn.Offset says at which it
// will be written.
func Provisional(revision int64) bool { return revision >= provisional }

// underWay is a key by which xbernetes' etcd API knows that it shall give each write of a
// transaction a revision of its own. The key exists at revisions in the middle of one.
const underWay = "/xbernetes/transactions/under-way"

// Store is where transactions are written.
type Store struct {
	KV clientv3.KV
	// Apart says that the store is xbernetes' etcd API. Any other gives all writes of a
	// transaction one revision. The watch cache of an API server may lose some of them then: it
	// takes events of one revision for one event.
	Apart bool
}

// Middle says whether a revision is in the middle of a transaction, so that some of its
// writes can be seen there, and others not.
func (s Store) Middle(ctx context.Context, revision int64) (bool, error) {
	if !s.Apart {
		return false, nil
	}
	resp, err := s.KV.Get(ctx, underWay, clientv3.WithRev(revision), clientv3.WithSerializable(), clientv3.WithCountOnly())
	if err != nil {
		return false, err
	}
	return resp.Count > 0, nil
}

// Txn is one transaction. Its methods are safe for concurrent use: of a request that
// took too long, the rest may still run.
type Txn struct {
	store Store

	mu      sync.Mutex
	over    bool
	keys    map[string]*key
	issued  []string // the keys of the provisional revisions, in order
	pending int      // bytes that Commit would write
	err     error    // the first read or write that failed, but for ErrOver
}

// key is what a transaction knows of one key.
type key struct {
	read int64            // the revision of the stored value when it was first looked at; 0: there was none
	now  *mvccpb.KeyValue // what the transaction sees; nil: nothing. Never changed once set
	// staged is the provisional revision of the last change; 0: now is what is stored.
	staged int64
}

func (k *key) revision() int64 {
	if k.now == nil {
		return 0
	}
	return k.now.ModRevision
}

func (k *key) bytes() int {
	if k.staged == 0 || k.now == nil {
		return 0
	}
	return len(k.now.Key) + len(k.now.Value)
}

// New begins a transaction.
func New(s Store) *Txn { return &Txn{store: s, keys: make(map[string]*key)} }

// End refuses all later reads and writes. What was staged stays for Commit.
func (t *Txn) End() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
}

// Err returns why the first read or write that failed did so, whatever became of the
// error on its way through others' code.
func (t *Txn) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// failed keeps the first error. The caller holds t.mu.
func (t *Txn) failed(err error) error {
	if t.err == nil {
		t.err = err
	}
	return err
}

// look returns what the transaction knows of a key, which it asks the store for the
// first time. The store may answer from a state that is behind: Commit and Confirm
// notice. The caller holds t.mu.
func (t *Txn) look(ctx context.Context, name string) (*key, error) {
	if t.over {
		return nil, ErrOver
	}
	if k, ok := t.keys[name]; ok {
		return k, nil
	}
	if len(t.keys) == MaxKeys {
		return nil, t.failed(ErrTooLarge)
	}
	resp, err := t.store.KV.Get(ctx, name, clientv3.WithSerializable())
	if err != nil {
		return nil, t.failed(err)
	}
	k := &key{}
	if len(resp.Kvs) == 1 {
		k.now, k.read = resp.Kvs[0], resp.Kvs[0].ModRevision
	}
	t.keys[name] = k
	return k, nil
}

// Get returns what the transaction sees at a key; nil if there is nothing. The caller
// must not change it.
func (t *Txn) Get(ctx context.Context, name string) (*mvccpb.KeyValue, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k, err := t.look(ctx, name)
	if err != nil {
		return nil, err
	}
	return k.now, nil
}

// Create stages a value at a key where the transaction sees nothing; it is an error if
// there is something. lease 0 is none.
func (t *Txn) Create(ctx context.Context, name string, value []byte, lease clientv3.LeaseID) error {
	staged, _, err := t.set(ctx, name, 0, &mvccpb.KeyValue{Value: value, Lease: int64(lease)})
	if err == nil && !staged {
		return fmt.Errorf("key %s exists", name)
	}
	return err
}

// set stages a value, or with nil the deletion of a key, if the transaction sees the
// expected revision there; 0 is that of a key that does not exist. It returns whether
// it did, and what the transaction saw before.
func (t *Txn) set(ctx context.Context, name string, expected int64, value *mvccpb.KeyValue) (staged bool, before *mvccpb.KeyValue, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k, err := t.look(ctx, name)
	if err != nil {
		return false, nil, err
	}
	if k.revision() != expected {
		return false, k.now, nil
	}
	revision := provisional + int64(len(t.issued))
	if value != nil {
		value.Key, value.ModRevision = []byte(name), revision
	}
	next := &key{read: k.read, now: value, staged: revision}
	pending := t.pending + next.bytes() - k.bytes()
	if pending > MaxBytes {
		return false, nil, t.failed(ErrTooLarge)
	}
	t.issued = append(t.issued, name)
	t.keys[name], t.pending = next, pending
	return true, k.now, nil
}

// Commit writes what was staged with one request, if nothing that the transaction has
// read was changed, and returns the revision after it. On any error but ErrConflict nobody
// knows whether it was written, unless the error says so.
func (t *Txn) Commit(ctx context.Context) (revision int64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	resp, err := t.store.KV.Txn(ctx).If(t.unchanged()...).Then(opsOf(t.writes())...).Commit()
	if err != nil {
		return 0, err
	}
	if !resp.Succeeded {
		return 0, ErrConflict
	}
	return resp.Header.Revision, nil
}

// write is a key as Commit writes it.
type write struct {
	name string
	*key
}

// revisionOf returns the provisional revision of a key's last change.
func (t *Txn) revisionOf(name string) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.keys[name].staged
}

// writes returns what is to be written, in the order in which it was staged last.
func (t *Txn) writes() (all []write) {
	for name, k := range t.keys {
		if k.staged != 0 && (k.now != nil || k.read != 0) {
			all = append(all, write{name, k})
		}
	}
	slices.SortFunc(all, func(a, b write) int { return cmp.Compare(a.staged, b.staged) })
	return all
}

func opsOf(writes []write) (ops []clientv3.Op) {
	for _, w := range writes {
		if w.now == nil {
			ops = append(ops, clientv3.OpDelete(w.name))
			continue
		}
		ops = append(ops, clientv3.OpPut(w.name, string(w.now.Value), clientv3.WithLease(clientv3.LeaseID(w.now.Lease))))
	}
	return ops
}

// Offset returns how many revisions after the first write a staged value will be
// written, or the last value of its key if that was changed again. What is written at
// no revision counts as the last write.
func (t *Txn) Offset(provisionally int64) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	offsets, last := t.offsets()
	if o, ok := offsets[t.issued[provisionally-provisional]]; ok {
		return o
	}
	return last
}

// LastOffset returns how many revisions there are from the first write to the last.
func (t *Txn) LastOffset() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, last := t.offsets()
	return last
}

// offsets returns the offset of each key, and the greatest. A store that writes apart does
// so in order; what has a lease comes with the first write.
func (t *Txn) offsets() (offsets map[string]int64, last int64) {
	offsets, apart := map[string]int64{}, int64(0)
	for _, w := range t.writes() {
		offsets[w.name] = 0
		if t.store.Apart && (w.now == nil || w.now.Lease == 0) {
			offsets[w.name], last = apart, apart
			apart++
		}
	}
	return offsets, last
}

// Confirm says whether all that the transaction has read is still as it was, so that
// what follows from it is true now. It writes nothing.
func (t *Txn) Confirm(ctx context.Context) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	if len(t.keys) == 0 {
		return true, nil
	}
	resp, err := t.store.KV.Txn(ctx).If(t.unchanged()...).Commit()
	if err != nil {
		return false, err
	}
	return resp.Succeeded, nil
}

// unchanged are the conditions that all that was read is as it was.
func (t *Txn) unchanged() []clientv3.Cmp {
	all := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(underWay), "=", 0)}
	for _, name := range slices.Sorted(maps.Keys(t.keys)) {
		all = append(all, clientv3.Compare(clientv3.ModRevision(name), "=", t.keys[name].read))
	}
	return all
}

type contextKey struct{}

// With returns a context whose reads and writes through a Client belong to t.
func With(ctx context.Context, t *Txn) context.Context {
	return context.WithValue(ctx, contextKey{}, t)
}

// From returns the transaction that ctx belongs to; nil if none.
func From(ctx context.Context) *Txn {
	t, _ := ctx.Value(contextKey{}).(*Txn)
	return t
}

// Client reads and writes through a transaction where the context belongs to one, and
// through Interface otherwise.
type Client struct{ etcdkubernetes.Interface }

// Get implements etcdkubernetes.Interface.
func (c Client) Get(ctx context.Context, key string, opts etcdkubernetes.GetOptions) (etcdkubernetes.GetResponse, error) {
	t := From(ctx)
	if t == nil {
		return c.Interface.Get(ctx, key, opts)
	}
	kv, err := t.Get(ctx, key)
	return etcdkubernetes.GetResponse{KV: kv, Revision: provisional}, err
}

// OptimisticPut implements etcdkubernetes.Interface.
func (c Client) OptimisticPut(ctx context.Context, key string, value []byte, expected int64, opts etcdkubernetes.PutOptions) (etcdkubernetes.PutResponse, error) {
	t := From(ctx)
	if t == nil {
		return c.Interface.OptimisticPut(ctx, key, value, expected, opts)
	}
	if opts.LeaseID != 0 {
		return etcdkubernetes.PutResponse{}, ErrExpires
	}
	kv := &mvccpb.KeyValue{Value: value}
	staged, before, err := t.set(ctx, key, expected, kv)
	if !staged || err != nil {
		return etcdkubernetes.PutResponse{KV: before}, err
	}
	return etcdkubernetes.PutResponse{Succeeded: true, Revision: kv.ModRevision}, nil
}

// OptimisticDelete implements etcdkubernetes.Interface.
func (c Client) OptimisticDelete(ctx context.Context, key string, expected int64, opts etcdkubernetes.DeleteOptions) (etcdkubernetes.DeleteResponse, error) {
	t := From(ctx)
	if t == nil {
		return c.Interface.OptimisticDelete(ctx, key, expected, opts)
	}
	staged, before, err := t.set(ctx, key, expected, nil)
	if !staged || err != nil {
		return etcdkubernetes.DeleteResponse{KV: before}, err
	}
	return etcdkubernetes.DeleteResponse{Succeeded: true, Revision: t.revisionOf(key)}, nil
}
