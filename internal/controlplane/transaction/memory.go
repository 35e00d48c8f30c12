package transaction

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/xbernetes/xbernetes/api/transaction/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/controlplane/stage"
)

// memoryPrefix is where transactions with an idempotency key are remembered: outside of
// what the API serves.
const memoryPrefix = "/xbernetes/transactions/"

// A transaction is remembered for one to two times this long.
const remembered = time.Hour

// memory keeps which transactions were made, by their idempotency keys. A record is
// committed with its transaction, and its revision is the transaction's.
type memory struct {
	lease clientv3.Lease

	mu    sync.Mutex
	id    clientv3.LeaseID
	until time.Time // records may have this lease until then
}

// record is what is stored of one transaction. It is written with the first object, so
// that the versions of what it wrote follow from that of the record. It holds names only: what an object
// holds may have to be encrypted.
type record struct {
	Digest  string  `json:"digest"` // of the operations
	Last    int64   `json:"last"`   // the offset of the last write
	Results []named `json:"results"`
}

// named is the result of an operation without the object.
type named struct {
	Code   int32  `json:"code"`
	Offset *int64 `json:"offset,omitempty"` // of the object's version; nil: it was not changed
	metav1.PartialObjectMetadata
}

func recordKey(o order) string {
	sum := sha256.Sum256([]byte(strconv.Quote(o.user.GetName()) + strconv.Quote(o.user.GetUID()) + strconv.Quote(o.key)))
	return memoryPrefix + hex.EncodeToString(sum[:])
}

func digestOf(operations []v1alpha1.Operation) (string, error) {
	text, err := json.Marshal(operations)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// recall returns what an earlier transaction with o's key did; nil if there was none.
func (m *memory) recall(ctx context.Context, t *stage.Txn, o order) (*v1alpha1.TransactionStatus, error) {
	kv, err := t.Get(ctx, recordKey(o))
	if err != nil || kv == nil {
		return nil, err
	}
	var rec record
	if err := utiljson.Unmarshal(kv.Value, &rec); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("read the record of an idempotency key: %w", err))
	}
	digest, err := digestOf(o.operations)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	if digest != rec.Digest {
		return nil, apierrors.NewConflict(v1alpha1.GroupVersion().WithResource("transactions").GroupResource(), "",
			fmt.Errorf("nothing was changed: the idempotency key was used for other operations"))
	}
	status := &v1alpha1.TransactionStatus{ResourceVersion: strconv.FormatInt(kv.ModRevision+rec.Last, 10), Replayed: true}
	for _, n := range rec.Results {
		result := v1alpha1.Result{Code: n.Code}
		if n.Offset != nil {
			n.ResourceVersion = strconv.FormatInt(kv.ModRevision+*n.Offset, 10)
		}
		if n.Kind != "" {
			raw, err := json.Marshal(n.PartialObjectMetadata)
			if err != nil {
				return nil, apierrors.NewInternalError(err)
			}
			result.Object = &runtime.RawExtension{Raw: raw}
		}
		status.Results = append(status.Results, result)
	}
	return status, nil
}

// keep stages the record of a transaction.
func (m *memory) keep(ctx context.Context, t *stage.Txn, o order, results []v1alpha1.Result) error {
	digest, err := digestOf(o.operations)
	if err != nil {
		return err
	}
	rec := record{Digest: digest, Last: t.LastOffset()}
	for _, result := range results {
		n := named{Code: result.Code}
		if result.Object != nil {
			var object metav1.PartialObjectMetadata
			if err := utiljson.Unmarshal(result.Object.Raw, &object); err != nil {
				return err
			}
			n.TypeMeta = object.TypeMeta
			n.Name, n.Namespace, n.UID, n.ResourceVersion = object.Name, object.Namespace, object.UID, object.ResourceVersion
			if p, err := strconv.ParseInt(object.ResourceVersion, 10, 64); err == nil && stage.Provisional(p) {
				n.ResourceVersion, n.Offset = "", new(t.Offset(p))
			}
		}
		rec.Results = append(rec.Results, n)
	}
	value, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	lease, err := m.current(ctx)
	if err != nil {
		return err
	}
	return t.Create(ctx, recordKey(o), value, lease)
}

// current returns a lease that records may have. Records share leases, so that
// remembering costs no request of its own.
func (m *memory) current(ctx context.Context) (clientv3.LeaseID, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Now().Before(m.until) {
		return m.id, nil
	}
	granted, err := m.lease.Grant(ctx, int64(2*remembered/time.Second))
	if err != nil {
		return 0, fmt.Errorf("grant the lease of idempotency keys: %w", err)
	}
	m.id, m.until = granted.ID, time.Now().Add(remembered)
	return m.id, nil
}
