package main

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/xbernetes/xbernetes/internal/devstore"
	"github.com/xbernetes/xbernetes/internal/privatefile"
)

const (
	devBucket  = "xb-dev"
	devPort    = 7800 // of no other command's defaults
	maxRegions = 16
)

//go:embed example
var examples embed.FS

// devFlags are those of xb dev.
type devFlags struct {
	dir     string
	regions int
	latency time.Duration
	port    int
	chosen  bool // the port was asked for: take no other
}

// account is one party of xb dev: a server process and credentials of its own.
type account struct {
	Name      string `json:"name"`
	AccessKey string `json:"accessKey"`
	SecretKey string `json:"secretKey"`
}

func newDevCommand() *cobra.Command {
	f := &devFlags{}
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run an object store and two accounts on this machine, to try xbernetes out",
		Long: `Run, on this machine, an S3-compatible object store and two accounts over it,
vendor and tenant, each with a server process of its own. They share a bucket,
each with its own credentials, and nothing else: no server knows the other's
address. Kill one, and the other goes on; xb dev says how to start it again.
Everything binds to loopback, and a second start finds it all again.

The object store does not sync to disk: it is for trying things out.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.chosen = cmd.Flags().Changed("port")
			return runDev(cmd.Context(), f, cmd.OutOrStdout())
		},
	}
	dir := defaultDataDir()
	if dir != "" {
		dir = filepath.Join(dir, "dev")
	}
	cmd.PersistentFlags().StringVar(&f.dir, "dir", dir, "where everything is kept")
	cmd.Flags().IntVar(&f.regions, "regions", 2, "how many accounts: vendor, tenant, tenant-2, …, each as if in a region of its own")
	cmd.Flags().DurationVar(&f.latency, "latency", 0, "round trip to put between each account and the object store, such as 80ms")
	cmd.Flags().IntVar(&f.port, "port", devPort, "port of the object store; the accounts' servers have those that follow. A default that is taken gives way to a free port")
	cmd.AddCommand(newDevStartCommand(f), newDevStoreCommand())
	return cmd
}

func (f *devFlags) validate() (err error) {
	if f.regions < 1 || f.regions > maxRegions {
		return fmt.Errorf("--regions is %d; want 1 to %d", f.regions, maxRegions)
	}
	if f.latency < 0 || f.latency > 10*time.Second {
		return fmt.Errorf("--latency is %v; want 0 to 10s", f.latency)
	}
	if f.port < 1 || f.port+f.regions > 65535 {
		return fmt.Errorf("--port is %d; want 1 to %d, so that the accounts' ports can follow", f.port, 65535-f.regions)
	}
	return f.findDir()
}

func (f *devFlags) findDir() (err error) {
	if f.dir == "" {
		return errors.New("no home directory to keep things in; set --dir")
	}
	f.dir, err = filepath.Abs(f.dir)
	return err
}

// runDev runs the store and the accounts until ctx ends, then stops the
// accounts before the store that they need.
func runDev(ctx context.Context, f *devFlags, out io.Writer) error {
	if err := f.validate(); err != nil {
		return err
	}
	unlock, err := lockDir(f.dir)
	if err != nil {
		return err
	}
	defer unlock()
	accounts, err := openAccounts(f.dir, f.regions)
	if err != nil {
		return err
	}
	addrs, err := f.addresses()
	if err != nil {
		return err
	}
	say := oneByOne(out)
	say("Starting an object store and %d accounts in %s (Ctrl-C stops them)\n", len(accounts), f.dir)

	storeCtx, stopStore := context.WithCancel(context.WithoutCancel(ctx))
	defer stopStore()
	below, storeCtx := errgroup.WithContext(storeCtx)
	store := storeChild(f.dir, addrs[0])
	below.Go(func() error { return store.keep(storeCtx, say, f.again(store)) })
	endpoints, err := delayed(storeCtx, below, addrs[0], len(accounts), f.latency)
	if err != nil {
		return err
	}

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
			return nil // ctx ended first
		}
		return runAccounts(aboveCtx, f, accounts, endpoints, addrs[1:], say)
	})
	err = above.Wait()
	if ctx.Err() != nil {
		say("\nStopping\n")
	}
	stopStore()
	if storeErr := below.Wait(); storeErr != nil {
		return storeErr
	}
	return err
}

// oneByOne prints what several goroutines have to say.
func oneByOne(out io.Writer) (say func(format string, args ...any)) {
	var mu sync.Mutex
	return func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, format, args...)
	}
}

// again is what to type to start a process of this xb dev again.
func (f *devFlags) again(c *child) string {
	exe, err := os.Executable()
	if err != nil {
		exe = "xb"
	}
	return shellQuote(exe) + " dev start " + c.name + " --dir " + shellQuote(f.dir)
}

// shellQuote is a word that a shell takes as it is.
func shellQuote(word string) string {
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("/._-+:@,", r))
	}) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// addresses are those of the store and of each account's server.
func (f *devFlags) addresses() ([]string, error) {
	addrs := make([]string, 0, f.regions+1)
	for i := range f.regions + 1 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(f.port+i))
		lis, err := net.Listen("tcp", addr)
		if err != nil && f.chosen {
			return nil, fmt.Errorf("listen at %s: %w; choose other ports with --port, or stop what holds it", addr, err)
		}
		if err != nil {
			lis, err = net.Listen("tcp", "127.0.0.1:0")
		}
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer lis.Close() // all are held until each has one of its own
		addrs = append(addrs, lis.Addr().String())
	}
	return addrs, nil
}

// storeName is the object store's name beside those of the accounts.
const storeName = "store"

func storeChild(dir, addr string) *child {
	ready := filepath.Join(dir, "store.ready")
	return &child{
		name: storeName, log: filepath.Join(dir, "store.log"), ready: ready, down: filepath.Join(dir, "store.down"),
		args: []string{"dev", "store", "--dir", filepath.Join(dir, "objects"), "--accounts", accountsFile(dir), "--listen", addr, "--ready-file", ready},
	}
}

// delayed gives each of n accounts an address of the store, a round trip away.
func delayed(ctx context.Context, g *errgroup.Group, addr string, n int, latency time.Duration) ([]string, error) {
	endpoints := slices.Repeat([]string{addr}, n)
	if latency == 0 {
		return endpoints, nil
	}
	for i := range endpoints {
		proxy, err := devstore.OpenDelay(devstore.DelayConfig{Target: addr, Latency: latency})
		if err != nil {
			return nil, err
		}
		endpoints[i] = proxy.Addr()
		g.Go(func() error { return proxy.Run(ctx) })
	}
	return endpoints, nil
}

// runAccounts runs one server for each account, and says what to do with them
// once all are ready.
func runAccounts(ctx context.Context, f *devFlags, accounts []account, endpoints, addrs []string, say func(string, ...any)) error {
	g, ctx := errgroup.WithContext(ctx)
	servers := make([]*child, len(accounts))
	for i, a := range accounts {
		trim := "never"
		if i == 0 { // the owner of the bucket
			trim = "always"
		}
		servers[i] = a.server(f.dir, endpoints[i], addrs[i], trim)
		g.Go(func() error { return servers[i].keep(ctx, say, f.again(servers[i])) })
	}
	g.Go(func() error {
		for i, a := range accounts {
			if until(ctx, func() bool { return written(servers[i].ready) }) != nil {
				return nil // ctx ended first
			}
			say("  %-10s ready, process %d\n", a.Name, servers[i].pid.Load())
		}
		return welcome(f, accounts, say)
	})
	return g.Wait()
}

// server is the server process of an account. Its credentials travel in a
// file that only this user can read.
func (a account) server(dir, endpoint, addr, trim string) *child {
	home := a.home(dir)
	journal := url.URL{Scheme: "s3", Host: devBucket, Path: "/shared", RawQuery: url.Values{
		"endpoint": {"http://" + endpoint}, "region": {devstore.Region},
	}.Encode()}
	kubeconfig := filepath.Join(home, "kubeconfig")
	return &child{
		name: a.Name, log: filepath.Join(home, "server.log"), ready: kubeconfig, down: filepath.Join(home, "down"),
		args: []string{"server", "--journal", journal.String(), "--data-dir", home, "--listen", addr, "--kubeconfig", kubeconfig, "--context", a.Name, "--trim", trim},
		env: []string{
			"AWS_SHARED_CREDENTIALS_FILE=" + filepath.Join(home, "credentials"), "AWS_CONFIG_FILE=" + os.DevNull,
			"AWS_PROFILE=default", "AWS_EC2_METADATA_DISABLED=true",
		},
	}
}

func (a account) home(dir string) string { return filepath.Join(dir, a.Name) }

func accountsFile(dir string) string { return filepath.Join(dir, "accounts.json") }

// lockDir makes the folder and keeps other processes out of it.
func lockDir(dir string) (unlock func(), err error) {
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

func readAccounts(dir string) (accounts []account, err error) {
	data, err := os.ReadFile(accountsFile(dir))
	if err == nil {
		err = json.Unmarshal(data, &accounts)
	}
	return accounts, err
}

// openAccounts finds the accounts of an earlier start, and makes those that
// are missing.
func openAccounts(dir string, n int) ([]account, error) {
	accounts, err := readAccounts(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read the accounts of an earlier start: %w; choose another --dir, or remove %s", err, accountsFile(dir))
	}
	for len(accounts) < n {
		name := []string{"vendor", "tenant"}[min(len(accounts), 1)]
		if i := len(accounts); i > 1 {
			name += "-" + strconv.Itoa(i)
		}
		accounts = append(accounts, account{Name: name, AccessKey: name, SecretKey: rand.Text()})
	}
	data, err := json.MarshalIndent(accounts, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := privatefile.Write(accountsFile(dir), data); err != nil {
		return nil, err
	}
	for _, a := range accounts {
		if err := privatefile.MkdirAll(a.home(dir)); err != nil {
			return nil, err
		}
		creds := fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n", a.AccessKey, a.SecretKey)
		if err := privatefile.Write(filepath.Join(a.home(dir), "credentials"), []byte(creds)); err != nil {
			return nil, err
		}
	}
	return accounts[:n], nil
}

// welcome writes one kubeconfig with a context for every account, and says
// what to type.
func welcome(f *devFlags, accounts []account, say func(string, ...any)) error {
	merged := clientcmdapi.NewConfig()
	for _, a := range accounts {
		c, err := clientcmd.LoadFromFile(filepath.Join(a.home(f.dir), "kubeconfig"))
		if err != nil {
			return fmt.Errorf("read the kubeconfig of %s: %w", a.Name, err)
		}
		for name, x := range c.Clusters {
			merged.Clusters[name] = x
		}
		for name, x := range c.AuthInfos {
			merged.AuthInfos[name] = x
		}
		for name, x := range c.Contexts {
			merged.Contexts[name] = x
		}
	}
	merged.CurrentContext = accounts[0].Name
	data, err := clientcmd.Write(*merged)
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(f.dir, "kubeconfig")
	if err := privatefile.Write(kubeconfig, data); err != nil {
		return err
	}
	for _, name := range []string{"crd.yaml", "database.yaml"} {
		data, err := examples.ReadFile("example/" + name)
		if err != nil {
			return err
		}
		if err := privatefile.Write(filepath.Join(f.dir, name), data); err != nil {
			return err
		}
	}
	from, to := accounts[len(accounts)-1].Name, accounts[0].Name
	say(`
Paste this in another terminal: it creates a CRD and an object in one account,
%[3]s, and watches it in the other, %[4]s.

  export KUBECONFIG=%[1]s
  kubectl --context %[3]s apply -f %[2]s && kubectl --context %[3]s wait --for condition=Established crd/databases.example.xbernetes.io
  kubectl --context %[3]s apply -f %[5]s
  kubectl --context %[4]s get databases --all-namespaces --watch

No account depends on another: kill one's process, and the others go on.

`, shellQuote(kubeconfig), shellQuote(filepath.Join(f.dir, "crd.yaml")), from, to, shellQuote(filepath.Join(f.dir, "database.yaml")))
	return nil
}

// newDevStartCommand asks a running xb dev for a process that is down.
func newDevStartCommand(f *devFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "start NAME",
		Short: "Start an account's server, or the object store, of a running xb dev again",
		Long: `Start an account's server, or the object store, again after it ended. NAME is
vendor, tenant, … or store. It belongs to the xb dev that runs in --dir, as before.`,
		Args: cobra.ExactArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return f.names(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.findDir(); err != nil {
				return err
			}
			if !slices.Contains(f.names(), args[0]) {
				return fmt.Errorf("%q is not in %s; there are %s", args[0], f.dir, strings.Join(f.names(), ", "))
			}
			if unlock, err := lockDir(f.dir); err == nil {
				unlock()
				return fmt.Errorf("no xb dev runs in %s; start one with xb dev --dir %s", f.dir, shellQuote(f.dir))
			}
			c := storeChild(f.dir, "")
			if args[0] != storeName {
				c = account{Name: args[0]}.server(f.dir, "", "", "")
			}
			if err := c.start(cmd.Context()); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is ready\n", c.name)
			return nil
		},
	}
}

// names are those of the processes that were started in the folder.
func (f *devFlags) names() []string {
	accounts, _ := readAccounts(f.dir) // without them there is none
	names := []string{storeName}
	for _, a := range accounts {
		names = append(names, a.Name)
	}
	return names
}

// newDevStoreCommand runs the object store alone: it is a process of its own,
// because it changes its working directory.
func newDevStoreCommand() *cobra.Command {
	var dir, file, listen, bucket, ready string
	var remote bool
	cmd := &cobra.Command{
		Use:    "store --dir DIR --accounts FILE",
		Short:  "Run the object store of xb dev alone",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			data, err := os.ReadFile(file)
			if err != nil {
				return fmt.Errorf("read the accounts: %w", err)
			}
			var accounts []account
			if err := json.Unmarshal(data, &accounts); err != nil {
				return fmt.Errorf("read the accounts in %s: %w", file, err)
			}
			cfg := devstore.Config{Dir: dir, Listen: listen, AllowRemote: remote, Bucket: bucket}
			for i, a := range accounts {
				cfg.Accounts = append(cfg.Accounts, devstore.Account{AccessKey: a.AccessKey, SecretKey: a.SecretKey, Owner: i == 0})
			}
			store, err := devstore.Open(cfg)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "Object store at %s, bucket %s\n", store.Endpoint(), bucket)
			if ready == "" {
				return store.Run(cmd.Context())
			}
			g, ctx := errgroup.WithContext(cmd.Context())
			g.Go(func() error { return store.Run(ctx) })
			g.Go(func() error {
				select {
				case <-store.Ready():
					return privatefile.Write(ready, []byte(store.Endpoint()+"\n"))
				case <-ctx.Done():
					return nil
				}
			})
			return g.Wait()
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "where the objects are kept")
	cmd.Flags().StringVar(&file, "accounts", "", "JSON file: [{name, accessKey, secretKey}, …]; the first owns the bucket")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "where to serve, HOST:PORT")
	cmd.Flags().StringVar(&bucket, "bucket", devBucket, "the bucket that the accounts share")
	cmd.Flags().StringVar(&ready, "ready-file", "", "file to write the store's URL to once it serves")
	cmd.Flags().BoolVar(&remote, "allow-remote", false, "serve at an address that other machines reach")
	return cmd
}
