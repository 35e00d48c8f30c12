package kubelog_test

import (
	"bytes"
	"log/slog"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2"

	"github.com/xbernetes/xbernetes/internal/kubelog"
)

// TestLevels: records arrive at the level that was chosen for them, those above the
// verbosity do not arrive, and neither do those that the logger does not want.
func TestLevels(t *testing.T) {
	t.Cleanup(klog.ClearLogger)
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo}))
	err := kubelog.Bridge(log, 2, func(r slog.Record) slog.Level {
		switch {
		case r.Message == "a detail":
			return slog.LevelDebug
		case r.Level >= slog.LevelError:
			return slog.LevelWarn
		}
		return slog.LevelInfo
	})
	if err != nil {
		t.Fatal(err)
	}
	klog.ErrorS(nil, "an error", "key", "value")
	klog.V(2).InfoS("asked for")
	klog.Background().WithName("part").V(2).Info("asked for in context")
	klog.V(3).InfoS("the body of a request")
	klog.Background().V(3).Info("the body of a request")
	klog.ErrorS(nil, "a detail")
	klog.InfoS("a detail")
	got := regexp.MustCompile(`(?m)^time=\S+ `).ReplaceAllString(out.String(), "")
	want := `level=WARN msg="an error" key=value
level=INFO msg="asked for"
level=INFO msg="asked for in context" logger=part
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("logged (-want +got):\n%s", diff)
	}
}
