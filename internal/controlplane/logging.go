package controlplane

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	_ "github.com/xbernetes/xbernetes/internal/controlplane/etcdlog" // before the API server's storage
)

// klogHandler passes klog's records on to a slog handler. klog has one level
// for all that is not an error, and talks a lot: such records become Debug, or
// Info where somebody asked for verbosity. Records above the verbosity, which
// may hold the bodies of requests, are dropped whatever the handler's level.
type klogHandler struct {
	slog.Handler
	info      slog.Level
	verbosity int
	phase     *atomic.Int32
	away      func() error // why the store does not answer; may be nil
}

// While the store is away, all that needs it fails at every try, and whoever knows
// why has logged it: that is information.
//
// While a server starts, its parts complain about each other until all are up.
// While it stops, everything in flight fails, as it should.
const (
	phaseStarting = iota // errors are warnings
	phaseServing
	phaseStopping // errors are information
)

func (h klogHandler) level(l slog.Level) slog.Level {
	phase := h.phase.Load()
	switch {
	case l < slog.LevelError || phase == phaseStopping || h.away != nil && h.away() != nil:
		return h.info
	case phase == phaseStarting:
		return slog.LevelWarn
	}
	return l
}

func (h klogHandler) Enabled(ctx context.Context, l slog.Level) bool {
	// klog's V(n) arrives as level -n.
	return int(-l) <= h.verbosity && h.Handler.Enabled(ctx, h.level(l))
}

func (h klogHandler) Handle(ctx context.Context, r slog.Record) error {
	// logr hands errors over without asking whether they are wanted.
	level := h.level(r.Level)
	if h.phase.Load() == phaseStarting && awaitsNamespace(r) {
		level = h.info
	}
	if r.Level = level; !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// awaitsNamespace says whether a record is a complaint about a namespace that
// the first start of a server is about to make.
func awaitsNamespace(r slog.Record) (awaits bool) {
	r.Attrs(func(a slog.Attr) bool {
		awaits = a.Key == "err" && strings.Contains(a.Value.String(), `namespaces "kube-system" not found`)
		return !awaits
	})
	return awaits
}

func (h klogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return klogHandler{h.Handler.WithAttrs(attrs), h.info, h.verbosity, h.phase, h.away}
}

func (h klogHandler) WithGroup(name string) slog.Handler {
	return klogHandler{h.Handler.WithGroup(name), h.info, h.verbosity, h.phase, h.away}
}

// bridgeKlog sends what klog's users say to log, at the given verbosity, until
// somebody bridges it elsewhere. The server that does so moves the phase on.
func bridgeKlog(log *slog.Logger, verbosity int, away func() error) (phase *atomic.Int32, err error) {
	h := klogHandler{log.Handler(), slog.LevelDebug, verbosity, new(atomic.Int32), away}
	if verbosity > 0 {
		h.info = slog.LevelInfo
	}
	fs := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(fs)
	if err := fs.Set("v", strconv.Itoa(verbosity)); err != nil {
		return nil, fmt.Errorf("set klog verbosity: %w", err)
	}
	klog.SetLoggerWithOptions(logr.FromSlogHandler(h), klog.ContextualLogger(true))
	return h.phase, nil
}
