// Package stage holds what one transaction has read and would write, until a single
// request to the store writes all of it or nothing. It knows keys and values, and
// neither kinds nor the API.
package stage

import (
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
	// MaxKeys is how many keys a transaction may touch: what one etcd request holds.
	MaxKeys = 128
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
	// ErrOver is returned for a read or write after End.
	ErrOver = errors.New("the transaction is over")
)

// provisional is the first of the revisions that staged values have until they are
// written. No store ever gets that far.
const provisional = 1 << 62

// Provisional says whether revision stands for the one that Commit will return.
func Provisional(revision int64) bool { return revision >= provisional }

// Txn is one transaction. Its methods are safe for concurrent use: of a request that
// took too long, the rest may still run.
type Txn struct {
	kv clientv3.KV

	mu      sync.Mutex
	over    bool
	keys    map[string]*key
	next    int64 // the revision of the next staged value; provisional or later
	pending int   // bytes that Commit would write
	err     error // the first read or write that failed, but for ErrOver
}

// key is what a transaction knows of one key.
type key struct {
	read int64            // the revision of the stored value when it was first looked at; 0: there was none
	now  *mvccpb.KeyValue // what the transaction sees; nil: nothing. Never changed once set
	// written says that now differs from what is stored.
	written bool
}

func (k *key) revision() int64 {
	if k.now == nil {
		return 0
	}
	return k.now.ModRevision
}

func (k *key) bytes() int {
	if !k.written || k.now == nil {
		return 0
	}
	return len(k.now.Key) + len(k.now.Value)
}

// New begins a transaction on the store that kv speaks to.
func New(kv clientv3.KV) *Txn {
	return &Txn{kv: kv, keys: make(map[string]*key), next: provisional}
}

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
	resp, err := t.kv.Get(ctx, name, clientv3.WithSerializable())
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
	if value != nil {
		value.Key, value.ModRevision = []byte(name), t.next
	}
	next := &key{read: k.read, now: value, written: value != nil || k.read != 0}
	pending := t.pending + next.bytes() - k.bytes()
	if pending > MaxBytes {
		return false, nil, t.failed(ErrTooLarge)
	}
	t.next++
	t.keys[name], t.pending = next, pending
	return true, k.now, nil
}

// Commit writes what was staged with one request, if nothing that the transaction has
// read was changed, and returns the revision of all that it wrote. On any error but
// ErrConflict nobody knows whether it was written, unless the error says so.
func (t *Txn) Commit(ctx context.Context) (revision int64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	var ops []clientv3.Op
	for _, name := range slices.Sorted(maps.Keys(t.keys)) {
		k := t.keys[name]
		switch {
		case !k.written:
		case k.now == nil:
			ops = append(ops, clientv3.OpDelete(name))
		default:
			ops = append(ops, clientv3.OpPut(name, string(k.now.Value), clientv3.WithLease(clientv3.LeaseID(k.now.Lease))))
		}
	}
	resp, err := t.kv.Txn(ctx).If(t.unchanged()...).Then(ops...).Commit()
	if err != nil {
		return 0, err
	}
	if !resp.Succeeded {
		return 0, ErrConflict
	}
	return resp.Header.Revision, nil
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
	resp, err := t.kv.Txn(ctx).If(t.unchanged()...).Commit()
	if err != nil {
		return false, err
	}
	return resp.Succeeded, nil
}

// unchanged are the conditions that all that was read is as it was.
func (t *Txn) unchanged() []clientv3.Cmp {
	var all []clientv3.Cmp
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
	kv := &mvccpb.KeyValue{Value: value, Lease: int64(opts.LeaseID)}
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
	return etcdkubernetes.DeleteResponse{Succeeded: true, Revision: provisional}, nil
}
