package controlplane

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// klogHandler passes klog's records on to a slog handler. klog has one level
// for all that is not an error, and talks a lot: such records become Debug, or
// Info where somebody asked for verbosity.
type klogHandler struct {
	slog.Handler
	info slog.Level
}

func (h klogHandler) level(l slog.Level) slog.Level {
	if l >= slog.LevelError {
		return l
	}
	return h.info
}

func (h klogHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.Handler.Enabled(ctx, h.level(l))
}

func (h klogHandler) Handle(ctx context.Context, r slog.Record) error {
	r.Level = h.level(r.Level)
	return h.Handler.Handle(ctx, r)
}

func (h klogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return klogHandler{h.Handler.WithAttrs(attrs), h.info}
}

func (h klogHandler) WithGroup(name string) slog.Handler {
	return klogHandler{h.Handler.WithGroup(name), h.info}
}

// bridgeKlog sends what klog's users say to log, at the given verbosity.
func bridgeKlog(log *slog.Logger, verbosity int) error {
	h := klogHandler{log.Handler(), slog.LevelDebug}
	if verbosity > 0 {
		h.info = slog.LevelInfo
	}
	fs := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(fs)
	if err := fs.Set("v", strconv.Itoa(verbosity)); err != nil {
		return fmt.Errorf("set klog verbosity: %w", err)
	}
	klog.SetLoggerWithOptions(logr.FromSlogHandler(h), klog.ContextualLogger(true))
	return nil
}
