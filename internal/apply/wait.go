package apply

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

// pause is how long Wait waits before it reads the objects again that are not ready.
const pause = time.Second

// Wait returns once all that was applied is ready, by the rules that kubectl's libraries have
// (kstatus), and all that was deleted is gone. It writes a line about each. When ctx
// ends first, the error says what is missing.
func Wait(ctx context.Context, to Server, r Report, progress io.Writer) error {
	open := r.Objects
	for {
		var still []Done
		var missing []string
		for _, d := range open {
			why, err := waitsFor(ctx, to, d)
			switch {
			case ctx.Err() != nil:
				missing = append(missing, fmt.Sprintf("%s is not known to be ready", d.name()))
			case err != nil:
				return err
			case why == "" && d.Change == "deleted":
				fmt.Fprintf(progress, "%s is gone\n", d.name())
			case why == "":
				fmt.Fprintf(progress, "%s is ready\n", d.name())
			default:
				still, missing = append(still, d), append(missing, fmt.Sprintf("%s: %s", d.name(), why))
			}
		}
		if len(missing) == 0 {
			return nil
		}
		open = still
		select {
		case <-ctx.Done():
			return fmt.Errorf("everything was applied, and this is not ready: %s", strings.Join(missing, "; "))
		case <-time.After(pause):
		}
	}
}

// waitsFor returns what an object waits for; empty if for nothing any more. An error is one
// that waiting does not mend.
func waitsFor(ctx context.Context, to Server, d Done) (string, error) {
	gv, err := schema.ParseGroupVersion(d.APIVersion)
	if err != nil {
		return "", err
	}
	mapping, err := to.Mapper.RESTMapping(gv.WithKind(d.Kind).GroupKind(), gv.Version)
	if err != nil {
		return "", err
	}
	found, err := to.API.Resource(mapping.Resource).Namespace(d.Namespace).Get(ctx, d.Name, metav1.GetOptions{})
	switch {
	case d.Change == "deleted" && apierrors.IsNotFound(err):
		return "", nil
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("%s was applied, and then deleted by somebody else", d.name())
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return "", err
	case err != nil:
		return err.Error(), nil
	case d.Change == "deleted":
		return "it is being deleted", nil
	}
	got, err := status.Compute(found)
	switch {
	case err != nil:
		return "", fmt.Errorf("read the status of %s: %w", d.name(), err)
	case got.Status == status.CurrentStatus:
		return "", nil
	case got.Status == status.FailedStatus:
		return "", errors.New(d.name() + " failed: " + got.Message)
	}
	return got.Message, nil
}
