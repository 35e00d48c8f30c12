package writes

import (
	"context"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/internal/gateway/conformance/ask"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/check"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/scratch"
)

func checkPrecondition(ctx context.Context, t *scratch.Target) error {
	o, err := t.Fresh(ctx, "precondition")
	if err != nil {
		return err
	}
	a, err := t.Delete(ctx, o.Name(), "00000000-0000-0000-0000-000000000000", false)
	if err != nil {
		return err
	}
	if err := a.Refused(metav1.StatusReasonConflict, http.StatusConflict); err != nil {
		return err
	}
	now, err := t.Read(ctx, o.Name())
	if err == nil && now.UID() != o.UID() {
		return a.Errorf("the object was deleted all the same")
	}
	return err
}

func checkGone(ctx context.Context, t *scratch.Target) error {
	o, err := t.Fresh(ctx, "gone")
	if err != nil {
		return err
	}
	a, err := t.Delete(ctx, o.Name(), o.UID(), false)
	if err != nil {
		return err
	}
	if a.Status != http.StatusAccepted {
		if _, err := a.Object(http.StatusOK); err != nil {
			return err
		}
	}
	return awaitGone(ctx, t, o.Name(), a)
}

// awaitGone waits until a deleted object is gone, since finalizers may hold it
// for a while.
func awaitGone(ctx context.Context, t *scratch.Target, name string, deleted *ask.Answer) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(t.Client().Timeout())
	for {
		now, err := t.Read(ctx, name)
		switch {
		case err != nil || now == nil:
			return err
		case now.Text("metadata", "deletionTimestamp") == "":
			return deleted.Errorf("the object is still there, and is not being deleted")
		case time.Now().After(deadline):
			return check.Skipf("%s: finalizers %v held the object longer than was waited", deleted.Request(), now.At("metadata", "finalizers"))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
