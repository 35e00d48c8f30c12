// Package kubelog sends what the parts of Kubernetes log by klog to a slog.Logger,
// at levels that its caller chooses. It logs nothing itself.
//
// klog has one logger in a process: the last Bridge counts.
package kubelog

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// Bridge sends klog's records to log, each at the level that level gives it.
// klog's own levels are error, and one for everything else. level may also be asked
// about a record that has its level only.
//
// Records above the verbosity, klog's -v, are dropped: they may hold the bodies of
// requests.
func Bridge(log *slog.Logger, verbosity int, level func(slog.Record) slog.Level) error {
	fs := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(fs)
	if err := fs.Set("v", strconv.Itoa(verbosity)); err != nil {
		return fmt.Errorf("set klog verbosity: %w", err)
	}
	h := handler{log.Handler(), verbosity, level}
	klog.SetLoggerWithOptions(logr.FromSlogHandler(h), klog.ContextualLogger(true))
	return nil
}

type handler struct {
	slog.Handler
	verbosity int
	level     func(slog.Record) slog.Level
}

// Enabled implements slog.Handler. klog's V(n) arrives as level -n.
func (h handler) Enabled(ctx context.Context, l slog.Level) bool {
	return int(-l) <= h.verbosity && h.Handler.Enabled(ctx, h.level(slog.Record{Level: l}))
}

// Handle implements slog.Handler. logr does not ask whether errors are enabled.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level = h.level(r); !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs), h.verbosity, h.level}
}

// WithGroup implements slog.Handler.
func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.Handler.WithGroup(name), h.verbosity, h.level}
}

// Debug is the level of every record where the program itself says what people should
// know, and where much of what the parts of Kubernetes say is about what a caller sent.
func Debug(slog.Record) slog.Level { return slog.LevelDebug }

// WarnOfErrors is Debug, and Warn for errors, where the program says once more what matters
// of them.
func WarnOfErrors(r slog.Record) slog.Level {
	if r.Level >= slog.LevelError {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}
