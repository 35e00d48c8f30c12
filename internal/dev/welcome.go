package dev

import (
	"embed"
	"path/filepath"

	"github.com/xbernetes/xbernetes/internal/kubeconfig"
	"github.com/xbernetes/xbernetes/internal/privatefile"
)

//go:embed example
var examples embed.FS

// welcome writes to dir one kubeconfig with a context for every account, and the
// files of an example, and says what to type.
func welcome(dir string, accounts []account, say printer) error {
	var kubeconfigs []string
	for _, a := range accounts {
		kubeconfigs = append(kubeconfigs, a.kubeconfig(dir))
	}
	merged := filepath.Join(dir, "kubeconfig")
	if err := kubeconfig.Merge(merged, accounts[0].Name, kubeconfigs...); err != nil {
		return err
	}
	for _, name := range []string{"crd.yaml", "database.yaml"} {
		data, err := examples.ReadFile("example/" + name)
		if err != nil {
			return err
		}
		if err := privatefile.Write(filepath.Join(dir, name), data); err != nil {
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

`, shellQuote(merged), shellQuote(filepath.Join(dir, "crd.yaml")), from, to, shellQuote(filepath.Join(dir, "database.yaml")))
	return nil
}
