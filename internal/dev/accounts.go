package dev

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	"github.com/xbernetes/xbernetes/internal/devstore"
	"github.com/xbernetes/xbernetes/internal/privatefile"
)

// account is one party: a server process and credentials of its own.
type account struct {
	Name      string `json:"name"`
	AccessKey string `json:"accessKey"`
	SecretKey string `json:"secretKey"`
}

func accountsFile(dir string) string { return filepath.Join(dir, "accounts.json") }

// home is the folder of what is the account's alone.
func (a account) home(dir string) string { return filepath.Join(dir, a.Name) }

func (a account) kubeconfig(dir string) string { return filepath.Join(a.home(dir), "kubeconfig") }

// server is the account's server process. It finds its credentials in a file that
// only this user can read.
func (a account) server(dir, endpoint, addr, trim string) *process {
	home := a.home(dir)
	journal := url.URL{Scheme: "s3", Host: Bucket, Path: "/shared", RawQuery: url.Values{
		"endpoint": {"http://" + endpoint}, "region": {devstore.Region},
	}.Encode()}
	kubeconfig := a.kubeconfig(dir)
	return &process{
		name: a.Name, log: filepath.Join(home, "server.log"), ready: kubeconfig, down: filepath.Join(home, "down"),
		args: []string{"server", "--journal", journal.String(), "--data-dir", home, "--listen", addr, "--kubeconfig", kubeconfig, "--context", a.Name, "--name", a.Name, "--account", a.Name, "--trim", trim},
		env: []string{
			"AWS_SHARED_CREDENTIALS_FILE=" + a.credentials(dir), "AWS_CONFIG_FILE=" + os.DevNull,
			"AWS_PROFILE=default", "AWS_EC2_METADATA_DISABLED=true",
		},
	}
}

func (a account) credentials(dir string) string { return filepath.Join(a.home(dir), "credentials") }

// save writes the account's credentials as the AWS SDK reads them.
func (a account) save(dir string) error {
	if err := privatefile.MkdirAll(a.home(dir)); err != nil {
		return err
	}
	content := fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n", a.AccessKey, a.SecretKey)
	return privatefile.Write(a.credentials(dir), []byte(content))
}

func readAccounts(file string) (accounts []account, err error) {
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &accounts)
	}
	return accounts, err
}

// openAccounts returns n accounts: those of an earlier start, and new ones for those
// that are missing.
func openAccounts(dir string, n int) ([]account, error) {
	file := accountsFile(dir)
	accounts, err := readAccounts(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read the accounts of an earlier start: %w; choose another --dir, or remove %s", err, file)
	}
	for i := len(accounts); i < n; i++ {
		name := nameOf(i)
		accounts = append(accounts, account{Name: name, AccessKey: name, SecretKey: rand.Text()})
	}
	data, err := json.MarshalIndent(accounts, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := privatefile.Write(file, data); err != nil {
		return nil, err
	}
	for _, a := range accounts {
		if err := a.save(dir); err != nil {
			return nil, err
		}
	}
	return accounts[:n], nil
}

// nameOf is the name of account i: vendor, tenant, tenant-2, tenant-3, …
func nameOf(i int) string {
	switch i {
	case 0:
		return "vendor"
	case 1:
		return "tenant"
	}
	return "tenant-" + strconv.Itoa(i)
}
