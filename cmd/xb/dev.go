package main

import (
	"bytes"
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
	devStore   = 7480 // ports that are taken if they are free
	devServer  = 7443
	maxRegions = 16
)

//go:embed example
var examples embed.FS

// devFlags are those of xb dev.
type devFlags struct {
	dir     string
	regions int
	latency time.Duration
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
address. Everything binds to loopback, and a second start finds it all again.

The object store does not sync to disk: it is for trying things out.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDev(cmd.Context(), f, cmd.OutOrStdout()) },
	}
	dir := defaultDataDir()
	if dir != "" {
		dir = filepath.Join(dir, "dev")
	}
	cmd.Flags().StringVar(&f.dir, "dir", dir, "where everything is kept")
	cmd.Flags().IntVar(&f.regions, "regions", 2, "how many accounts: vendor, tenant, tenant-2, …, each as if in a region of its own")
	cmd.Flags().DurationVar(&f.latency, "latency", 0, "round trip to put between each account and the object store, such as 80ms")
	cmd.AddCommand(newDevStoreCommand())
	return cmd
}

func (f *devFlags) validate() (err error) {
	if f.regions < 1 || f.regions > maxRegions {
		return fmt.Errorf("--regions is %d; want 1 to %d", f.regions, maxRegions)
	}
	if f.latency < 0 || f.latency > 10*time.Second {
		return fmt.Errorf("--latency is %v; want 0 to 10s", f.latency)
	}
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
	fmt.Fprintf(out, "Starting an object store and %d accounts in %s (Ctrl-C stops them)\n", len(accounts), f.dir)

	storeCtx, stopStore := context.WithCancel(context.WithoutCancel(ctx))
	defer stopStore()
	storeAddr := freeAddr(devStore)
	store := &child{
		name: "object store", log: filepath.Join(f.dir, "store.log"),
		args: []string{"dev", "store", "--dir", filepath.Join(f.dir, "objects"), "--accounts", accountsFile(f.dir), "--listen", storeAddr},
	}
	below, storeCtx := errgroup.WithContext(storeCtx)
	below.Go(func() error { return store.run(storeCtx) })
	endpoints, err := delayed(storeCtx, below, storeAddr, len(accounts), f.latency)
	if err != nil {
		return err
	}

	above, aboveCtx := errgroup.WithContext(ctx)
	above.Go(func() error { // the store's end is everybody's
		select {
		case <-aboveCtx.Done():
			return nil
		case <-storeCtx.Done():
			return errors.New("the object store stopped")
		}
	})
	above.Go(func() error {
		if err := untilListening(aboveCtx, storeAddr); err != nil {
			return nil // ctx ended first
		}
		return runAccounts(aboveCtx, f, accounts, endpoints, out)
	})
	err = above.Wait()
	if ctx.Err() != nil {
		fmt.Fprintln(out, "\nStopping")
	}
	stopStore()
	if storeErr := below.Wait(); storeErr != nil {
		return storeErr
	}
	return err
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

// runAccounts runs one server an account, and says what to do with them once
// all are ready.
func runAccounts(ctx context.Context, f *devFlags, accounts []account, endpoints []string, out io.Writer) error {
	g, ctx := errgroup.WithContext(ctx)
	servers := make([]*child, len(accounts))
	taken := map[string]bool{}
	for i, a := range accounts {
		addr := freeAddr(devServer + i)
		if taken[addr] {
			addr = freeAddr(0)
		}
		taken[addr] = true
		trim := "never"
		if i == 0 { // the owner of the bucket
			trim = "always"
		}
		servers[i] = a.server(f.dir, endpoints[i], addr, trim)
		g.Go(func() error { return servers[i].run(ctx) })
	}
	g.Go(func() error {
		for i, a := range accounts {
			if err := untilWritten(ctx, servers[i].ready); err != nil {
				return nil // ctx ended first
			}
			fmt.Fprintf(out, "  %-10s ready\n", a.Name)
		}
		return welcome(f, accounts, out)
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
		name: a.Name, log: filepath.Join(home, "server.log"), ready: kubeconfig,
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

// openAccounts finds the accounts of an earlier start, and makes those that
// are missing.
func openAccounts(dir string, n int) ([]account, error) {
	var accounts []account
	data, err := os.ReadFile(accountsFile(dir))
	if err == nil {
		err = json.Unmarshal(data, &accounts)
	}
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
	if data, err = json.MarshalIndent(accounts, "", "  "); err != nil {
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
		// The kubeconfig says that a server is ready: an old one must not.
		if err := os.Remove(filepath.Join(a.home(dir), "kubeconfig")); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	return accounts[:n], nil
}

// welcome writes one kubeconfig with a context for every account, and says
// what to type.
func welcome(f *devFlags, accounts []account, out io.Writer) error {
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
	fmt.Fprintf(out, `
Paste this in another terminal: it creates a CRD and an object in one account,
%[3]s, and watches it in the other, %[4]s.

  export KUBECONFIG=%[1]s
  kubectl --context %[3]s apply -f %[2]s && kubectl --context %[3]s wait --for condition=Established crd/databases.example.xbernetes.io
  kubectl --context %[3]s apply -f %[5]s
  kubectl --context %[4]s get databases --all-namespaces --watch

`, kubeconfig, filepath.Join(f.dir, "crd.yaml"), from, to, filepath.Join(f.dir, "database.yaml"))
	return nil
}

// freeAddr is a loopback address: at port if that is free, else at any.
func freeAddr(port int) string {
	for _, p := range []int{port, 0} {
		if lis, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p))); err == nil {
			defer lis.Close()
			return lis.Addr().String()
		}
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

const pollEvery = 50 * time.Millisecond

func untilListening(ctx context.Context, addr string) error {
	return until(ctx, func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

func untilWritten(ctx context.Context, file string) error {
	return until(ctx, func() bool {
		data, err := os.ReadFile(file)
		return err == nil && len(bytes.TrimSpace(data)) > 0
	})
}

func until(ctx context.Context, ok func() bool) error {
	ticks := time.NewTicker(pollEvery)
	defer ticks.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticks.C:
		}
	}
	return ctx.Err()
}

// newDevStoreCommand runs the object store alone: it is a process of its own,
// because it changes its working directory.
func newDevStoreCommand() *cobra.Command {
	var dir, file, listen, bucket string
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
			return store.Run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "where the objects are kept")
	cmd.Flags().StringVar(&file, "accounts", "", "JSON file: [{name, accessKey, secretKey}, …]; the first owns the bucket")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "where to serve, HOST:PORT")
	cmd.Flags().StringVar(&bucket, "bucket", devBucket, "the bucket that the accounts share")
	cmd.Flags().BoolVar(&remote, "allow-remote", false, "serve at an address that other machines reach")
	return cmd
}
