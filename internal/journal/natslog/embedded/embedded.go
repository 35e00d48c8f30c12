// Package embedded keeps a journal in a NATS server of its own, in this process, on a
// directory. The server listens at no port, and nobody else can reach it.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/xbernetes/xbernetes/internal/journal/natslog"
	"github.com/xbernetes/xbernetes/internal/privatefile"
)

const (
	// maxPayload is the length of the longest message, in bytes: that of the longest
	// record, and what is around it.
	maxPayload = 8<<20 + 64<<10
	// startTimeout bounds how long the server reads its directory.
	startTimeout = 5 * time.Minute
)

// Store is a journal and its server. It implements journal.Store.
type Store struct {
	*natslog.Log
	server *server.Server
	lock   *os.File
}

// Options say how to open a journal.
type Options struct {
	// ReadOnly opens a journal that must be there, and changes nothing in it. The
	// server may still write files of its own.
	ReadOnly bool
	// Logger gets what people should know; nil: nobody.
	Logger *slog.Logger
}

// Open starts a server on dir, an absolute path, which it makes if need be, and opens the
// journal in it. It fails if another process has it open.
func Open(ctx context.Context, dir string, opts Options) (_ *Store, err error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.ReadOnly {
		_, err = os.Stat(filepath.Join(dir, "lock"))
	} else {
		err = privatefile.MkdirAll(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("open journal in %s: %w", dir, err)
	}
	s := &Store{}
	if s.lock, err = privatefile.Lock(filepath.Join(dir, "lock")); err != nil {
		return nil, fmt.Errorf("open journal in %s: %w", dir, err)
	}
	if err := s.start(ctx, dir, opts); err != nil {
		s.stop()
		return nil, fmt.Errorf("open journal in %s: %w", dir, err)
	}
	return s, nil
}

func (s *Store) start(ctx context.Context, dir string, opts Options) (err error) {
	s.server, err = server.NewServer(&server.Options{
		ServerName: "xbernetes",
		DontListen: true,
		NoSigs:     true,
		JetStream:  true,
		StoreDir:   dir,
		SyncAlways: true,
		MaxPayload: maxPayload,
	})
	if err != nil {
		return err
	}
	s.server.SetLoggerV2(serverLog{opts.Logger}, false, false, false)
	s.server.Start()
	if !s.server.ReadyForConnections(startTimeout) || !s.server.JetStreamEnabled() {
		return errors.New("its NATS server did not start; the log says why")
	}
	s.Log, err = natslog.Open(ctx, natslog.Config{
		Servers:   []string{"127.0.0.1:4222"}, // not used: the connection is in this process
		Name:      natslog.DefaultName,
		Synced:    true,
		Replicas:  1,
		Exclusive: true,
		ReadOnly:  opts.ReadOnly,
		Options:   []nats.Option{nats.InProcessServer(s.server)},
		Logger:    opts.Logger,
	})
	return err
}

// Close closes the journal, and ends its server.
func (s *Store) Close() error {
	err := s.Log.Close()
	s.stop()
	return err
}

// stop ends the server, if there is one, before it lets go of the directory.
func (s *Store) stop() {
	if s.server != nil {
		s.server.Shutdown()
		s.server.WaitForShutdown()
	}
	_ = s.lock.Close()
}

// serverLog gives the server's messages to a logger.
type serverLog struct{ log *slog.Logger }

func (l serverLog) say(level slog.Level, format string, v []any) {
	l.log.Log(context.Background(), level, "the embedded NATS server says", "message", fmt.Sprintf(format, v...))
}

func (l serverLog) Noticef(format string, v ...any) { l.say(slog.LevelDebug, format, v) }
func (l serverLog) Warnf(format string, v ...any)   { l.say(slog.LevelWarn, format, v) }
func (l serverLog) Errorf(format string, v ...any)  { l.say(slog.LevelError, format, v) }
func (l serverLog) Fatalf(format string, v ...any)  { l.say(slog.LevelError, format, v) }
func (l serverLog) Debugf(format string, v ...any)  { l.say(slog.LevelDebug, format, v) }
func (l serverLog) Tracef(format string, v ...any)  { l.say(slog.LevelDebug, format, v) }
