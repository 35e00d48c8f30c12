package peers

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xbernetes/xbernetes/internal/kubeconfig"
)

// The kubeconfig that deploy/servicesync/peer-kubeconfig.sh prints may come in a Secret.
func TestDeployedKubeconfig(t *testing.T) {
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("there is no kubectl here")
	}
	script, err := filepath.Abs(filepath.Join("..", "..", "..", "deploy", "servicesync", "peer-kubeconfig.sh"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "config"), strings.NewReplacer("name: w,", "name: west,", "cluster: {", "cluster: {certificate-authority-data: Y2VydAo=, ").
		Replace(kubeconfigOf("https://west:6443", "{token: admin}")))
	// No server is asked for a token.
	write(t, filepath.Join(dir, "kubectl"), "#!/bin/sh\ncase \"$*\" in *'create token'*) echo peer;; *) exec "+kubectl+" \"$@\";; esac\n")
	if err := os.Chmod(filepath.Join(dir, "kubectl"), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	print := exec.CommandContext(t.Context(), "sh", script, "west")
	print.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(dir, "config"), "PATH="+dir+":"+os.Getenv("PATH"))
	made, err := print.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, made)
	}
	p := parse("west", "west.kubeconfig", made, "", kubeconfig.Inline)
	if p.Err != nil {
		t.Fatal(p.Err)
	}
	if p.Config.Host != "https://west:6443" || p.Config.BearerToken != "peer" || string(p.Config.CAData) != "cert\n" {
		t.Errorf("it has the server %s, the token %s and the CA %q", p.Config.Host, p.Config.BearerToken, p.Config.CAData)
	}
}
