package peers

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What docs/servicesync.md says to paste makes a kubeconfig that may come in a Secret.
func TestDocumentedKubeconfig(t *testing.T) {
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("there is no kubectl here")
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "servicesync.md"))
	if err != nil {
		t.Fatal(err)
	}
	script := ""
	for i, block := range strings.Split(string(page), "```") {
		if i%2 == 1 && strings.Contains(block, "create token") {
			script = block
		}
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "config"), strings.NewReplacer("name: w,", "name: west,", "cluster: {", "cluster: {certificate-authority-data: Y2VydAo=, ").
		Replace(kubeconfig("https://west:6443", "{token: admin}")))
	// No server is asked for a token.
	write(t, filepath.Join(dir, "kubectl"), "#!/bin/sh\ncase \"$*\" in *'create token'*) echo peer;; *) exec "+kubectl+" \"$@\";; esac\n")
	if err := os.Chmod(filepath.Join(dir, "kubectl"), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	paste := exec.CommandContext(t.Context(), "sh", "-e", "-c", script)
	paste.Dir = dir
	paste.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(dir, "config"), "PATH="+dir+":"+os.Getenv("PATH"))
	if out, err := paste.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	made, err := os.ReadFile(filepath.Join(dir, "west.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	p := parse("west", "west.kubeconfig", made, "", inline)
	if p.Err != nil {
		t.Fatal(p.Err)
	}
	if p.Config.Host != "https://west:6443" || p.Config.BearerToken != "peer" || string(p.Config.CAData) != "cert\n" {
		t.Errorf("it has the server %s, the token %s and the CA %q", p.Config.Host, p.Config.BearerToken, p.Config.CAData)
	}
}
