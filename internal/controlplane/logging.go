package controlplane

import (
	"log/slog"
	"strings"
	"sync/atomic"

	_ "github.com/xbernetes/xbernetes/internal/controlplane/etcdlog" // before the API server's storage
	"github.com/xbernetes/xbernetes/internal/kubelog"
)

// While a server starts, its parts complain about each other until all are up.
// While it stops, everything in flight fails, as it should.
const (
	phaseStarting = iota // errors are warnings
	phaseServing
	phaseStopping // errors are information
)

// klogLevels choose levels for what klog's users say. They talk a lot: what is no
// error becomes Debug, or Info where somebody asked for verbosity.
type klogLevels struct {
	info  slog.Level
	phase *atomic.Int32
	away  func() error // why the store does not answer; may be nil
}

// level returns a record's level. While the store is away, every try of everything
// that needs it fails, and whoever knows why has logged it: that is information.
func (k klogLevels) level(r slog.Record) slog.Level {
	phase := k.phase.Load()
	switch {
	case r.Level < slog.LevelError || phase == phaseStopping || k.away != nil && k.away() != nil:
		return k.info
	case phase == phaseStarting && awaitsNamespace(r):
		return k.info
	case phase == phaseStarting:
		return slog.LevelWarn
	}
	return r.Level
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

// bridgeKlog sends what klog's users say to log, at the given verbosity, until
// somebody bridges it elsewhere. The server that does so moves the phase on.
func bridgeKlog(log *slog.Logger, verbosity int, away func() error) (phase *atomic.Int32, err error) {
	k := klogLevels{slog.LevelDebug, new(atomic.Int32), away}
	if verbosity > 0 {
		k.info = slog.LevelInfo
	}
	return k.phase, kubelog.Bridge(log, verbosity, k.level)
}
