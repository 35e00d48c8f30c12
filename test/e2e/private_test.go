package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xbernetes/xbernetes/test/lab/network"
	"github.com/xbernetes/xbernetes/test/lab/process"
	"github.com/xbernetes/xbernetes/test/lab/wait"
)

// TestFilesArePrivate starts every command that keeps files, with a umask that
// forbids nothing, in folders where links to another file wait at the names
// that the command writes to. What it makes must be for its user alone, and
// the other file must stay as it is.
func TestFilesArePrivate(t *testing.T) {
	for name, c := range map[string]struct {
		flags  string   // DIR is the folder; nothing else is looked at
		links  []string // in DIR
		writes []string // in DIR; once these are there, the command has made its files
	}{
		"etcd": {
			flags:  "etcd --journal file://DIR/journal --listen unix://DIR/etcd.sock",
			writes: []string{"etcd.sock", "journal/meta.json"},
		},
		"server": {
			flags:  "server --data-dir DIR/data --listen 127.0.0.1:PORT --kubeconfig DIR/admin --etcd-listen unix://DIR/etcd.sock",
			links:  []string{"admin", "data/pki/admin.key"},
			writes: []string{"etcd.sock", "admin", "data/server-id", "data/pki/admin.key", "data/pki/service-account.key"},
		},
		"gateway": {
			flags:  "gateway --data-dir DIR/data --listen 127.0.0.1:PORT --servers DIR/servers.yaml --cache-file DIR/cache.json",
			links:  []string{"data/kubeconfig", "cache.json.new"},
			writes: []string{"data/kubeconfig", "data/pki/admin.key", "cache.json"},
		},
		"dev": {
			flags:  "dev --dir DIR/data --regions 1",
			links:  []string{"data/kubeconfig", "data/crd.yaml", "data/store.log", "data/vendor/server.log", "data/vendor/credentials"},
			writes: []string{"data/kubeconfig", "data/database.yaml", "data/vendor/kubeconfig"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, other := t.TempDir(), filepath.Join(t.TempDir(), "other")
			servers := "apiVersion: aggregation.xbernetes.io/v1alpha1\nkind: RemoteAPIServer\nmetadata: {name: absent}\nspec: {url: 'http://127.0.0.1:1', groups: [example.com]}\n"
			for file, content := range map[string]string{filepath.Join(dir, "servers.yaml"): servers, other: "not yours\n"} {
				if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for _, link := range c.links {
				if err := plant(filepath.Join(dir, link), other); err != nil {
					t.Fatal(err)
				}
			}
			argv := []string{"sh", "-c", `umask 0; exec "$0" "$@"`, xbBinary}
			argv = append(argv, strings.Fields(strings.NewReplacer("DIR", dir, "PORT", network.FreePort()).Replace(c.flags))...)
			// The user has credentials of AWS in the environment, as many have.
			p := process.Spawn(t, withFreePorts(t), name, append(vendorAccount.Env(), "HOME="+t.TempDir()), argv...)
			wait.Poll(t, startsWithin, "it has made its files", func(context.Context) error {
				for _, file := range c.writes {
					if info, err := os.Lstat(filepath.Join(dir, file)); err != nil || info.Mode()&fs.ModeSymlink != 0 {
						return errors.Join(fmt.Errorf("%s: %v, %w", file, info, err), p.Alive())
					}
				}
				return nil
			})
			onlyForUs(t, dir)
			if got, err := os.ReadFile(other); err != nil || string(got) != "not yours\n" {
				t.Errorf("a file that a link leads to holds %q, %v; want it left alone", got, err)
			}
			p.StopWell(t)
		})
	}
}

// onlyForUs fails the test for each file below dir that others may read or write.
func onlyForUs(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeSymlink != 0 {
			return err
		}
		if entry.Name() == ".vgwlocks" {
			return fs.SkipDir // empty files of the object store's library, in a folder that is checked
		}
		info, err := entry.Info()
		if err == nil && path != dir && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v; want nothing for anybody else", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// plant puts a link to a file where a program will write.
func plant(link, to string) error {
	if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
		return err
	}
	return os.Symlink(to, link)
}
