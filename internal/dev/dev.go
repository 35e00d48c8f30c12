// Package dev runs an object store and several accounts' servers on this machine,
// each as a process of this program, and starts again those that end. It never
// serves an API itself, and never listens outside loopback.
//
// The processes are other commands of xb, which it knows by their flags.
package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/xbernetes/xbernetes/internal/devstore"
	"github.com/xbernetes/xbernetes/internal/privatefile"
)

// Config says what to run.
type Config struct {
	Dir      string        // where everything is kept; absolute
	Accounts int           // how many; 1 or more
	Latency  time.Duration // of a round trip between each account and the store
	Port     int           // of the store; the accounts' servers have those that follow
	// FixedPorts: a port that is taken is an error; otherwise it gives way to a
	// free one.
	FixedPorts bool
}

// Run runs the store and the accounts until ctx ends, and tells out about them. It
// refuses a folder in which another Run goes on.
func Run(ctx context.Context, cfg Config, out io.Writer) error {
	unlock, err := lock(cfg.Dir)
	if err != nil {
		return err
	}
	defer unlock()
	accounts, err := openAccounts(cfg.Dir, cfg.Accounts)
	if err != nil {
		return err
	}
	addrs, err := cfg.addresses()
	if err != nil {
		return err
	}
	s := &scene{Config: cfg, accounts: accounts, store: addrs[0], servers: addrs[1:], say: oneByOne(out)}
	s.say("Starting an object store and %d accounts in %s (Ctrl-C stops them)\n", len(accounts), cfg.Dir)
	return s.run(ctx)
}

// scene is all that one Run runs. Nothing in it changes.
type scene struct {
	Config
	accounts []account
	store    string   // the store's address
	servers  []string // the address of each account's server
	say      printer
}

// run runs the store, and above it the accounts, which stop before the store does
// because they need it.
func (s *scene) run(ctx context.Context) error {
	storeCtx, stopStore := context.WithCancel(context.WithoutCancel(ctx))
	defer stopStore()
	below, storeCtx := errgroup.WithContext(storeCtx)
	endpoints, err := s.delayed(storeCtx, below)
	if err != nil {
		return err
	}
	store := storeProcess(s.Dir, s.store)
	below.Go(func() error { return s.keep(storeCtx, store) })

	above, aboveCtx := errgroup.WithContext(ctx)
	above.Go(func() error {
		select {
		case <-aboveCtx.Done():
			return nil
		case <-storeCtx.Done(): // it could not be started
			return errors.New("the object store did not start")
		}
	})
	above.Go(func() error {
		if err := until(aboveCtx, func() bool { return written(store.ready) }); err != nil {
			return nil // aboveCtx ended first
		}
		return s.runAccounts(aboveCtx, endpoints)
	})
	err = above.Wait()
	if ctx.Err() != nil {
		s.say("\nStopping\n")
	}
	stopStore()
	if storeErr := below.Wait(); storeErr != nil {
		return storeErr
	}
	return err
}

// delayed returns an address of the store for each account. With a latency each
// account has a proxy of its own, which runs in g until ctx ends.
func (s *scene) delayed(ctx context.Context, g *errgroup.Group) ([]string, error) {
	endpoints := slices.Repeat([]string{s.store}, len(s.accounts))
	if s.Latency == 0 {
		return endpoints, nil
	}
	for i := range endpoints {
		proxy, err := devstore.OpenDelay(devstore.DelayConfig{Target: s.store, Latency: s.Latency})
		if err != nil {
			return nil, err
		}
		endpoints[i] = proxy.Addr()
		g.Go(func() error { return proxy.Run(ctx) })
	}
	return endpoints, nil
}

// runAccounts runs one server for each account. Once all are ready, it says what to
// do with them.
func (s *scene) runAccounts(ctx context.Context, endpoints []string) error {
	g, ctx := errgroup.WithContext(ctx)
	servers := make([]*process, len(s.accounts))
	for i, a := range s.accounts {
		trim := "never"
		if i == 0 { // the owner of the bucket
			trim = "always"
		}
		servers[i] = a.server(s.Dir, endpoints[i], s.servers[i], trim)
		g.Go(func() error { return s.keep(ctx, servers[i]) })
	}
	g.Go(func() error {
		for i, a := range s.accounts {
			if until(ctx, func() bool { return written(servers[i].ready) }) != nil {
				return nil // ctx ended first
			}
			s.say("  %-10s ready, process %d\n", a.Name, servers[i].pid.Load())
		}
		return welcome(s.Dir, s.accounts, s.say)
	})
	return g.Wait()
}

func (s *scene) keep(ctx context.Context, p *process) error {
	return p.keep(ctx, s.say, startCommand(s.Dir, p.name))
}

// Start asks the Run that goes on in dir to start a process that is down, by its
// name, and waits until it is ready.
func Start(ctx context.Context, dir, name string) error {
	names := Names(dir)
	if !slices.Contains(names, name) {
		return fmt.Errorf("%q is not in %s; there are %s", name, dir, strings.Join(names, ", "))
	}
	if unlock, err := lock(dir); err == nil {
		unlock()
		return fmt.Errorf("no xb dev runs in %s; start one with xb dev --dir %s", dir, shellQuote(dir))
	}
	p := storeProcess(dir, "")
	if name != storeName {
		p = account{Name: name}.server(dir, "", "", "")
	}
	return p.start(ctx)
}

// Names are those of the processes that were ever started in dir.
func Names(dir string) []string {
	accounts, _ := readAccounts(accountsFile(dir)) // without that file there are none
	names := []string{storeName}
	for _, a := range accounts {
		names = append(names, a.Name)
	}
	return names
}

// lock makes dir, and keeps other processes out of it until unlock is called.
func lock(dir string) (unlock func(), err error) {
	if err := privatefile.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("make the folder for xb dev: %w; choose another with --dir", err)
	}
	f, err := privatefile.Lock(filepath.Join(dir, "lock"))
	if errors.Is(err, privatefile.ErrLocked) {
		return nil, fmt.Errorf("another xb dev runs in %s; stop it, or choose another folder with --dir", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("lock the folder for xb dev: %w; choose another with --dir", err)
	}
	return func() { f.Close() }, nil
}

// addresses returns the store's address, and then that of each account's server.
func (c Config) addresses() ([]string, error) {
	addrs := make([]string, 0, c.Accounts+1)
	for i := range c.Accounts + 1 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port+i))
		lis, err := net.Listen("tcp", addr)
		if err != nil && c.FixedPorts {
			return nil, fmt.Errorf("listen at %s: %w; choose other ports with --port, or stop what holds it", addr, err)
		}
		if err != nil {
			lis, err = net.Listen("tcp", "127.0.0.1:0")
		}
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer lis.Close() // not before all are found, so that no two are the same
		addrs = append(addrs, lis.Addr().String())
	}
	return addrs, nil
}

// printer prints as fmt.Printf does. It may be called from many goroutines.
type printer func(format string, args ...any)

func oneByOne(out io.Writer) printer {
	var mu sync.Mutex
	return func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, format, args...)
	}
}

// startCommand is what to type to start a process in dir again.
func startCommand(dir, name string) string {
	exe, err := os.Executable()
	if err != nil {
		exe = "xb"
	}
	return shellQuote(exe) + " dev start " + name + " --dir " + shellQuote(dir)
}

// shellQuote returns word as a shell reads it back.
func shellQuote(word string) string {
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("/._-+:@,", r))
	}) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
