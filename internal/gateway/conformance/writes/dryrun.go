package writes

import (
	"context"
	"net/http"
	"net/url"

	"github.com/xbernetes/xbernetes/internal/gateway/conformance/ask"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/scratch"
)

func checkDryCreate(ctx context.Context, t *scratch.Target) error {
	a, err := t.Create(ctx, "dry", scratch.DryRun(), nil)
	if err != nil {
		return err
	}
	o, err := a.Object(http.StatusCreated)
	if err != nil {
		return err
	}
	if o.Name() != t.Named("dry") {
		return a.Errorf("the answer is object %q; want what would have been made", o.Name())
	}
	return absent(ctx, t, "dry", a)
}

// absent wants that the request with this answer has made no object.
func absent(ctx context.Context, t *scratch.Target, suffix string, a *ask.Answer) error {
	o, err := t.Read(ctx, t.Named(suffix))
	if err == nil && o != nil {
		return a.Errorf("the object was made: clients that try things out change the server")
	}
	return err
}

func checkDryUnknown(ctx context.Context, t *scratch.Target) error {
	a, err := t.Create(ctx, "dry-unknown", url.Values{"dryRun": {"Some"}}, nil)
	if err != nil {
		return err
	}
	if err := a.Refused("", http.StatusBadRequest, http.StatusUnprocessableEntity); err != nil {
		return err
	}
	return absent(ctx, t, "dry-unknown", a)
}

func checkDryChange(ctx context.Context, t *scratch.Target) error {
	o, err := t.Fresh(ctx, "dry-change")
	if err != nil {
		return err
	}
	patch, err := t.Patch(ctx, o.Name(), "dry", scratch.DryRun())
	if err != nil {
		return err
	}
	if _, err := patch.Object(http.StatusOK); err != nil {
		return err
	}
	del, err := t.Delete(ctx, o.Name(), o.UID(), true)
	if err != nil {
		return err
	}
	if _, err := del.Object(http.StatusOK); err != nil {
		return err
	}
	now, err := t.Read(ctx, o.Name())
	switch {
	case err != nil:
		return err
	case now == nil || now.Text("metadata", "deletionTimestamp") != "":
		return del.Errorf("the object was deleted")
	case scratch.Probe(now) != "":
		return patch.Errorf("the object was changed")
	}
	return nil
}
