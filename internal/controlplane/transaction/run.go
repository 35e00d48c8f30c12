package transaction

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/xbernetes/xbernetes/api/transaction/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/controlplane/away"
	"github.com/xbernetes/xbernetes/internal/controlplane/stage"
)

// maxAnswers is how many bytes the answers to the operations may have in all.
const maxAnswers = 4 << 20

// errAgain is returned by attempt if other clients changed what it had read: nothing
// was changed, and another attempt may succeed.
var errAgain = errors.New("carry out the transaction again")

// run is one attempt at a transaction.
type run struct {
	*Server
	order
	txn     *stage.Txn
	answers int // bytes
}

// attempt carries out the steps and commits them. Its errors are the API's, or errAgain.
func (r *run) attempt(ctx context.Context) (v1alpha1.TransactionStatus, error) {
	status := v1alpha1.TransactionStatus{}
	if r.key != "" && !r.dryRun {
		earlier, err := r.memory.recall(ctx, r.txn, r.order)
		if err != nil || earlier != nil {
			return r.replay(ctx, earlier, err)
		}
	}
	for i, st := range r.steps {
		result, err := r.operate(ctx, i, st)
		if err != nil {
			return v1alpha1.TransactionStatus{}, r.judge(ctx, err)
		}
		status.Results = append(status.Results, result)
	}
	if r.dryRun {
		if err := r.judge(ctx, nil); err != nil {
			return v1alpha1.TransactionStatus{}, err
		}
		return status, finish(status.Results, func(int64) string { return "" })
	}
	if r.key != "" {
		if err := r.memory.keep(ctx, r.txn, r.order, status.Results); err != nil {
			return v1alpha1.TransactionStatus{}, r.judge(ctx, apierrors.NewInternalError(err))
		}
	}
	revision, err := r.txn.Commit(ctx)
	if err != nil {
		return v1alpha1.TransactionStatus{}, commitError(err)
	}
	status.ResourceVersion = strconv.FormatInt(revision, 10)
	first := revision - r.txn.LastOffset()
	return status, finish(status.Results, func(provisional int64) string { return strconv.FormatInt(first+r.txn.Offset(provisional), 10) })
}

// replay answers with what an earlier request with the same key did.
func (r *run) replay(ctx context.Context, earlier *v1alpha1.TransactionStatus, err error) (v1alpha1.TransactionStatus, error) {
	if err = r.judge(ctx, err); err != nil {
		return v1alpha1.TransactionStatus{}, err
	}
	return *earlier, nil
}

// judge ends an attempt that writes nothing. It returns err, if what the attempt has
// read is still true; if not, err may be wrong, and judge returns errAgain.
func (r *run) judge(ctx context.Context, err error) error {
	r.txn.End()
	if trouble := r.txn.Err(); trouble != nil && !errors.Is(trouble, stage.ErrTooLarge) && ctx.Err() == nil {
		return apierrors.NewServiceUnavailable("nothing was changed: " + away.ReadError(trouble).Error())
	}
	same, trouble := r.txn.Confirm(ctx)
	switch {
	case ctx.Err() != nil:
		return apierrors.NewTimeoutError("nothing was changed: the transaction took too long", 0)
	case trouble != nil:
		return apierrors.NewServiceUnavailable("nothing was changed: " + away.ReadError(trouble).Error())
	case !same:
		return errAgain
	}
	return err
}

// commitError is the error of a commit in the API's words.
func commitError(err error) error {
	if errors.Is(err, stage.ErrConflict) {
		return errAgain
	}
	told := away.WriteError(err)
	if apierrors.IsServiceUnavailable(told) {
		return told
	}
	return apierrors.NewTimeoutError("the transaction may have been made, or may still be; send it again with the same idempotency key to learn that: "+err.Error(), 0)
}

// operate carries out one step.
func (r *run) operate(ctx context.Context, i int, st step) (v1alpha1.Result, error) {
	a := r.inside.send(ctx, r.user, part{origin: r.origin, id: r.id, dryRun: r.dryRun, run: r}, i, st.call)
	if ctx.Err() != nil {
		return v1alpha1.Result{}, ctx.Err()
	}
	if r.answers += a.body.Len(); r.answers > maxAnswers {
		return v1alpha1.Result{}, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("nothing was changed: the answers have more than %d bytes", maxAnswers))
	}
	result := v1alpha1.Result{Code: int32(a.code), Warnings: warningsOf(a.header)}
	if st.Verb == v1alpha1.Assert {
		result.Code = http.StatusOK
		return result, r.assert(i, st, a)
	}
	if !a.ok() {
		return result, at(i, st, statusOf(a))
	}
	result.Object = &runtime.RawExtension{Raw: a.body.Bytes()}
	return result, nil
}

// assert compares the answer to a read with what is asserted.
func (r *run) assert(i int, st step, a *answer) error {
	conflict := func(format string, args ...any) error {
		return at(i, st, metav1.Status{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Message: fmt.Sprintf(format, args...)})
	}
	switch {
	case a.code == http.StatusNotFound && st.Absent:
		return nil
	case !a.ok():
		return at(i, st, statusOf(a))
	case st.Absent:
		return conflict("the object exists")
	case st.Preconditions == nil:
		return nil
	}
	var object metav1.PartialObjectMetadata
	if err := utiljson.Unmarshal(a.body.Bytes(), &object); err != nil {
		return apierrors.NewInternalError(fmt.Errorf("read the answer to %s: %w", st, err))
	}
	want := st.Preconditions
	if want.UID != "" && want.UID != object.UID {
		return conflict("the object's uid is %s, and not %s", object.UID, want.UID)
	}
	if want.ResourceVersion != "" && want.ResourceVersion != object.ResourceVersion {
		return conflict("the object's resourceVersion is not %s", want.ResourceVersion)
	}
	return nil
}

// statusOf reads the error that a request was answered with.
func statusOf(a *answer) metav1.Status {
	status := metav1.Status{}
	if utiljson.Unmarshal(a.body.Bytes(), &status) != nil || status.Kind != "Status" {
		status = metav1.Status{Message: a.body.String()}
	}
	if status.Code == 0 {
		status.Code = int32(a.code)
	}
	return status
}

func warningsOf(h http.Header) (texts []string) {
	warnings, _ := utilnet.ParseWarningHeaders(h.Values("Warning"))
	for _, w := range warnings {
		texts = append(texts, w.Text)
	}
	return texts
}

// finish gives the objects of the results the versions at which they were committed.
// version maps a provisional one, and returns "" after a dry run.
func finish(results []v1alpha1.Result, version func(provisional int64) string) error {
	for i := range results {
		object := results[i].Object
		if object == nil {
			continue
		}
		raw, err := settle(object.Raw, version)
		if err != nil {
			return apierrors.NewInternalError(fmt.Errorf("the transaction was made, and the answer to spec.operations[%d] cannot be read: %w", i, err))
		}
		object.Raw = raw
	}
	return nil
}

// settle gives an object the version at which it was committed, if it has a provisional
// one.
func settle(object []byte, version func(provisional int64) string) ([]byte, error) {
	var head metav1.PartialObjectMetadata
	if err := utiljson.Unmarshal(object, &head); err != nil {
		return nil, err
	}
	provisional, err := strconv.ParseInt(head.ResourceVersion, 10, 64)
	if err != nil || !stage.Provisional(provisional) {
		return object, nil
	}
	fields, metadata := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	if err := utiljson.Unmarshal(object, &fields); err != nil {
		return nil, err
	}
	if err := utiljson.Unmarshal(fields["metadata"], &metadata); err != nil {
		return nil, err
	}
	delete(metadata, "resourceVersion")
	if v := version(provisional); v != "" {
		if metadata["resourceVersion"], err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	if fields["metadata"], err = json.Marshal(metadata); err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}
