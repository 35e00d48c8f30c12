package dev

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/xbernetes/xbernetes/internal/devstore"
	"github.com/xbernetes/xbernetes/internal/privatefile"
)

// Bucket is the bucket that the accounts share.
const Bucket = "xb-dev"

// storeName is the object store's name beside those of the accounts.
const storeName = "store"

// storeProcess is the process of the object store. It is one of its own because it
// changes its working directory.
func storeProcess(dir, addr string) *process {
	ready := filepath.Join(dir, "store.ready")
	return &process{
		name: storeName, log: filepath.Join(dir, "store.log"), ready: ready, down: filepath.Join(dir, "store.down"),
		args: []string{"dev", "store", "--dir", filepath.Join(dir, "objects"), "--accounts", accountsFile(dir), "--listen", addr, "--ready-file", ready},
	}
}

// Store says how to run the object store alone.
type Store struct {
	devstore.Config        // Accounts is read from AccountsFile
	AccountsFile    string // JSON: [{name, accessKey, secretKey}, …]; the first owns the bucket
	ReadyFile       string // gets the store's URL once it serves; "" is none
}

// Run runs the object store until ctx ends.
func (s Store) Run(ctx context.Context, out io.Writer) error {
	accounts, err := readAccounts(s.AccountsFile)
	if err != nil {
		return fmt.Errorf("read the accounts in %s: %w", s.AccountsFile, err)
	}
	for i, a := range accounts {
		s.Accounts = append(s.Accounts, devstore.Account{AccessKey: a.AccessKey, SecretKey: a.SecretKey, Owner: i == 0})
	}
	store, err := devstore.Open(s.Config)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Object store at %s, bucket %s\n", store.Endpoint(), s.Bucket)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return store.Run(ctx) })
	if s.ReadyFile != "" {
		g.Go(func() error {
			select {
			case <-store.Ready():
				return privatefile.Write(s.ReadyFile, []byte(store.Endpoint()+"\n"))
			case <-ctx.Done():
				return nil
			}
		})
	}
	return g.Wait()
}
