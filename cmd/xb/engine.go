package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/xbernetes/xbernetes/internal/announce"
	"github.com/xbernetes/xbernetes/internal/etcdapi"
	"github.com/xbernetes/xbernetes/internal/gauges"
	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/notify/snsnotify"
	"github.com/xbernetes/xbernetes/internal/replica"
	"github.com/xbernetes/xbernetes/internal/snapshot"
	"github.com/xbernetes/xbernetes/internal/usage"
)

// engineFlags are what every command that serves a journal takes.
type engineFlags struct {
	journal string
	reads   string
	trim    string
	poll    time.Duration
	notify  string
	etcd    etcdapi.Address // its Host is empty if the etcd API is not served

	name, account string // that the server announces
}

func (f *engineFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.journal, "journal", f.journal, journalHelp())
	fs.StringVar(&f.reads, "reads", "linearizable", "linearizable: a read sees every write acknowledged anywhere before it, at the price of a question to the journal; session: it sees what this server has acknowledged or shown, and goes on when the journal is away")
	fs.StringVar(&f.trim, "trim", "auto", "delete the records that the last two snapshots stand for: auto (of a journal that one server has to itself), always (this account owns the bucket; give it to no other), never")
	fs.StringVar(&f.account, "account", "", "what to call the account that this server runs in, in xb status and metrics")
	usage.OneOf(cmd, "reads", "linearizable", "session")
	usage.OneOf(cmd, "trim", "auto", "always", "never")
	fs.DurationVar(&f.poll, "poll-interval", 100*time.Millisecond, "how often a busy server asks the journal for records of other servers; an idle one asks ten times less often, and one that is notified, twice a minute")
	fs.StringVar(&f.notify, "notify", "", "how servers of one journal wake each other:\n"+snsnotify.Forms+"\n(default: by the journal's own PostgreSQL or NATS; elsewhere they poll)")
}

// registerEtcdFiles adds the flags that name the files of the etcd API's address.
func registerEtcdFiles(a *etcdapi.Address, fs *pflag.FlagSet, prefix string) {
	fs.StringVar(&a.CertFile, prefix+"cert-file", "", "certificate of the etcd API, PEM")
	fs.StringVar(&a.KeyFile, prefix+"key-file", "", "key of the etcd API's certificate, PEM")
	fs.StringVar(&a.ClientCAFile, prefix+"trusted-ca-file", "", "CA that clients of the etcd API must have a certificate of, PEM")
}

// engine is a journal with a replica and the etcd API over it.
type engine struct {
	journal string // its URL
	log     *slog.Logger
	store   openJournal
	replica *replica.Replica
	api     *etcdapi.Server
	woken   *notify.Woken // by notifications; nil: the journal is polled

	lis *etcdapi.Listener // of --etcd-listen, or nil

	name, account string // that the server announces; may be empty
}

// openEngine checks the flags, takes the port, and opens the journal, in that
// order: what cannot work is said before anything is changed.
func openEngine(ctx context.Context, f *engineFlags, log *slog.Logger) (*engine, error) {
	if f.reads != "linearizable" && f.reads != "session" {
		return nil, fmt.Errorf("--reads is %q; want linearizable or session", f.reads)
	}
	if f.trim != "auto" && f.trim != "always" && f.trim != "never" {
		return nil, fmt.Errorf("--trim is %q; want auto, always or never", f.trim)
	}
	if f.poll < time.Millisecond {
		return nil, fmt.Errorf("--poll-interval is %v; want 1ms or more", f.poll)
	}
	for flag, value := range map[string]string{"name": f.name, "account": f.account} {
		if err := announce.CheckName(value); value != "" && err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
	}
	if f.notify != "" {
		if _, err := snsnotify.ParseURL(f.notify); err != nil {
			return nil, err
		}
	}
	e := &engine{journal: f.journal, name: f.name, account: f.account, log: log}
	cfg := etcdapi.Config{Logger: log, SessionReads: f.reads == "session"}
	var err error
	if f.etcd.Host != "" {
		if e.lis, err = f.etcd.Listen(); err != nil {
			return nil, err
		}
		cfg.ClientURLs = []string{e.lis.URL()}
	}
	if e.store, err = openStore(ctx, f.journal, openOptions{log: log}); err != nil {
		if e.lis != nil {
			e.lis.Close()
		}
		return nil, err
	}
	notifier, err := newNotifier(ctx, f.notify, f.journal, e.store, f.poll, log)
	if err != nil {
		if e.lis != nil {
			e.lis.Close()
		}
		return nil, errors.Join(err, e.store.Close())
	}
	e.woken, _ = notifier.(*notify.Woken)
	rc := replicaConfig(e.store, notifier, log)
	rc.Name = journalName(f.journal)
	rc.Trim = f.trim == "always" || f.trim == "auto" && e.store.Info().Exclusive
	e.replica = replica.New(rc)
	cfg.Replica = e.replica
	e.api = etcdapi.New(cfg)
	return e, nil
}

// collector shows to Prometheus what the engine counts.
func (e *engine) collector() prometheus.Collector {
	return gauges.New(gauges.Server{Replica: e.replica, API: e.api, Woken: e.woken, Labels: prometheus.Labels{
		"journal": e.replica.Journal().ID.String(), "writer": fmt.Sprintf("%016x", uint64(e.replica.Writer())), "version": version,
		"name": e.name, "account": e.account,
	}})
}

// announce tells, beside the journal, which server this is: people see its name where
// they would see its ID as a writer. If that fails, they see the ID.
func (e *engine) announce(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	s := announce.Server{Writer: e.replica.Writer(), Name: name, Account: e.account, Started: time.Now()}
	if announce.CheckName(version) == nil {
		s.Version = version
	}
	if err := announce.Put(ctx, e.store, s); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, journal.ErrClosed) {
		e.log.Warn("this server could not announce itself; xb status shows it without a name", "error", err)
	}
}

// close lets go of what openEngine took, if run is not called.
func (e *engine) close() {
	e.store.Close()
	if e.lis != nil {
		e.lis.Close()
	}
}

// away says why the journal does not answer; nil if it does.
func (e *engine) away() error {
	if o := e.replica.Outage(); o != nil {
		return o
	}
	return nil
}

// replicaConfig fits a replica to the service that its journal lives in.
func replicaConfig(store openJournal, notifier notify.Notifier, log *slog.Logger) replica.Config {
	cfg := replica.Config{
		Store:     store,
		Notifier:  notifier,
		Logger:    log,
		Snapshots: snapshotPolicy(store.remote),
	}
	if store.remote {
		cfg.CompressFrom = 1 << 10
	}
	return cfg
}

// snapshotPolicy weighs a record by what it costs to read at a restart.
func snapshotPolicy(remote bool) snapshot.Policy {
	if remote {
		return snapshot.Policy{EveryBytes: 16 << 20, RecordWeight: 16 << 10}
	}
	return snapshot.Policy{EveryBytes: 64 << 20}
}

// run serves the etcd API until ctx ends, and closes the journal. The API
// stops before the replica does, so that calls in flight get their answers.
func (e *engine) run(ctx context.Context) error {
	defer e.store.Close()
	below, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	replicaEnded := make(chan error, 1)
	go func() { replicaEnded <- e.replica.Run(below) }()

	g, above := errgroup.WithContext(ctx)
	if e.lis != nil {
		g.Go(func() error { return e.api.ServeAt(above, e.lis) })
	}
	g.Go(func() error {
		select {
		case <-above.Done():
			return nil
		case <-e.replica.Done():
			return replica.ErrStopped
		}
	})
	err := g.Wait()
	stop()
	cause := <-replicaEnded
	if errors.Is(cause, journal.ErrCorrupt) {
		return fmt.Errorf("journal %s: %w; look at it with xb fsck, and put what is damaged back from a copy", e.journal, cause)
	}
	return cmp.Or(cause, err)
}
