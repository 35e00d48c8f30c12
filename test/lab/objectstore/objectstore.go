// Package objectstore says how the object store of xb dev is started on its own, and how
// servers of xb reach it. It starts no process itself: those who use it differ in how.
package objectstore

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// An Account is one party's credentials for a store.
type Account struct {
	Name      string `json:"name"`
	AccessKey string `json:"accessKey"`
	SecretKey string `json:"secretKey"`
}

// Env is what a server finds its credentials by.
func (a Account) Env() []string {
	return []string{"AWS_ACCESS_KEY_ID=" + a.AccessKey, "AWS_SECRET_ACCESS_KEY=" + a.SecretKey}
}

// A Store is an object store with one bucket.
type Store struct {
	Dir      string // what it keeps: each object in objects/BUCKET/NAME; made if it is not there
	Listen   string // HOST:PORT
	Bucket   string
	Remote   bool      // Listen is not on loopback
	Accounts []Account // the first owns the bucket
}

// Argv writes a file with the accounts, and returns the command that runs the store by the
// program xb.
func (s Store) Argv(xb string) ([]string, error) {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, err
	}
	accounts, err := json.Marshal(s.Accounts)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(s.Dir, "accounts.json")
	if err := os.WriteFile(file, accounts, 0o600); err != nil {
		return nil, err
	}
	argv := []string{xb, "dev", "store", "--dir", s.Dir, "--listen", s.Listen, "--bucket", s.Bucket, "--accounts", file}
	if s.Remote {
		argv = append(argv, "--allow-remote")
	}
	return argv, nil
}

// Journal is the URL of a journal in the bucket.
func (s Store) Journal(prefix string) string {
	return fmt.Sprintf("s3://%s/%s?region=us-east-1&endpoint=http://%s", s.Bucket, prefix, s.Listen)
}
