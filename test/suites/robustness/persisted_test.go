package robustness

import (
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/tests/v3/robustness/model"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
)

// persisted reads the requests out of a journal, in the words of etcd's model:
// all that a replica carries out, in order, and nothing that it finds void.
func persisted(t *testing.T, log journal.Journal) []model.EtcdRequest {
	t.Helper()
	id := log.Info().ID
	state, chains := mvcc.New(), record.NewChains(id)
	var requests []model.EtcdRequest
	for {
		recs, err := log.Read(t.Context(), state.Slot()+1, 100)
		if err != nil {
			t.Fatalf("read the journal: %v", err)
		}
		if len(recs) == 0 {
			return requests
		}
		for _, rec := range recs {
			slot := state.Slot() + 1
			batch := batchOf(chains, id, rec)
			if batch == nil {
				state.Skip(slot)
				continue
			}
			if state.Apply(slot, batch, false) == nil {
				continue // seen before
			}
			for i := range batch.Requests {
				requests = append(requests, modelRequest(t, &batch.Requests[i]))
			}
		}
	}
}

// batchOf is nil for a record that carries no requests, or is void.
func batchOf(chains *record.Chains, id journal.ID, rec []byte) *mvcc.Batch {
	head, body, err := chains.Take(id, rec)
	if err != nil || head.Kind != record.Batch {
		return nil
	}
	requests, err := mvcc.ParseRequests(body)
	if err != nil {
		return nil
	}
	return &mvcc.Batch{From: id, Writer: head.Writer, Number: head.Number, Requests: requests}
}

func modelRequest(t *testing.T, r *mvcc.Request) model.EtcdRequest {
	t.Helper()
	switch r.Kind {
	case mvcc.Txn:
		txn := &model.TxnRequest{OperationsOnSuccess: modelOps(t, r.Then), OperationsOnFailure: modelOps(t, r.Else)}
		for i := range r.Compares {
			txn.Conditions = append(txn.Conditions, modelCondition(t, &r.Compares[i]))
		}
		return model.EtcdRequest{Type: model.Txn, Txn: txn}
	case mvcc.Compact:
		return model.EtcdRequest{Type: model.Compact, Compact: &model.CompactRequest{Revision: int64(r.Revision)}}
	case mvcc.LeaseGrant:
		return model.EtcdRequest{Type: model.LeaseGrant, LeaseGrant: &model.LeaseGrantRequest{LeaseID: int64(r.Lease)}}
	case mvcc.LeaseRevoke:
		return model.EtcdRequest{Type: model.LeaseRevoke, LeaseRevoke: &model.LeaseRevokeRequest{LeaseID: int64(r.Lease)}}
	default: // leases live longer than the tests, and nobody renews them
		t.Fatalf("the journal holds a request of kind %d, which the traffic does not make", r.Kind)
		return model.EtcdRequest{}
	}
}

func modelOps(t *testing.T, ops []mvcc.Op) []model.EtcdOperation {
	t.Helper()
	var out []model.EtcdOperation
	for i := range ops {
		op := &ops[i]
		switch {
		case op.Kind == mvcc.OpRange:
			out = append(out, model.EtcdOperation{Type: model.RangeOperation, Range: model.RangeOptions{
				Start: op.Range.Key, End: op.Range.End, Limit: op.Read.Limit, KeysOnly: op.Read.KeysOnly,
			}})
		case op.Kind == mvcc.OpPut:
			out = append(out, model.EtcdOperation{Type: model.PutOperation, Put: model.PutOptions{
				Key: op.Range.Key, Value: model.ToValueOrHash(string(op.Value)), LeaseID: int64(op.Lease),
			}})
		case op.Kind == mvcc.OpDelete && op.Range.Single():
			out = append(out, model.EtcdOperation{Type: model.DeleteOperation, Delete: model.DeleteOptions{Key: op.Range.Key}})
		default:
			t.Fatalf("the journal holds an operation that the traffic does not make: %+v", op)
		}
	}
	// Of one revision a watch here gives events by key, in etcd by operation;
	// neither is promised. The model takes the order of the operations.
	slices.SortStableFunc(out, func(a, b model.EtcdOperation) int { return strings.Compare(keyOf(a), keyOf(b)) })
	return out
}

func keyOf(op model.EtcdOperation) string {
	return op.Range.Start + op.Put.Key + op.Delete.Key // one of them is set
}

func modelCondition(t *testing.T, c *mvcc.Compare) model.EtcdCondition {
	t.Helper()
	out := model.EtcdCondition{Key: c.Range.Key}
	switch {
	case c.Result != mvcc.Equal || !c.Range.Single():
		t.Fatalf("the journal holds a comparison that the traffic does not make: %+v", c)
	case c.Target == mvcc.TargetMod:
		out.ExpectedRevision = c.Int
	case c.Target == mvcc.TargetVersion:
		out.ExpectedVersion = c.Int
	default:
		t.Fatalf("the journal holds a comparison that the traffic does not make: %+v", c)
	}
	return out
}
