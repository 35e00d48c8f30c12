package gateway

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/test/gateway/world"
	"github.com/xbernetes/xbernetes/test/lab/wait"
)

// TestSharedAuth has a server that knows only the gateway ask it who callers are
// and what they may: what it then says is the core server's word.
func TestSharedAuth(t *testing.T) {
	w := world.Start(t)
	dir := filepath.Join(w.Dir, "second")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	second := world.StartSample(t, dir, w.Gateway.Kubeconfig)
	second.Kubeconfig = filepath.Join(dir, "admin.kubeconfig")
	world.WriteKubeconfig(t, second.Kubeconfig, second.URL, second.CAFile, world.Token)
	second.Await(t)
	second.Kubectl(t, flunder("shared", "x"), "apply", "-f", "-")

	as := func(token string) (string, error) {
		file := filepath.Join(dir, "caller.kubeconfig")
		world.WriteKubeconfig(t, file, second.URL, second.CAFile, token)
		caller := *second
		caller.Kubeconfig = file
		return caller.TryKubectl(t, "", "get", "flunders", "-n", "default", "-o", "name")
	}
	if out, err := as("made-up"); err == nil || !strings.Contains(out+err.Error(), "Unauthorized") && !strings.Contains(out+err.Error(), "logged in") {
		t.Errorf("a token that the core server does not know: %v\n%s", err, out)
	}
	if out, err := as("nobodys-token"); err == nil || !strings.Contains(out+err.Error(), `User "nobody" cannot list resource "flunders"`) {
		t.Errorf("a user who may not: %v\n%s", err, out)
	}
	w.Core.Kubectl(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: flunders}
rules: [{apiGroups: [wardle.example.com], resources: [flunders], verbs: [get, list]}]
`, "apply", "-f", "-")
	w.Core.Kubectl(t, "", "create", "clusterrolebinding", "flunders", "--clusterrole=flunders", "--user=nobody")
	wait.Poll(t, time.Minute, "the user may, once the core server says so", func(context.Context) error {
		out, err := as("nobodys-token")
		if err == nil && !strings.Contains(out, "flunder.wardle.example.com/shared") {
			err = errors.New(out)
		}
		return err
	})
}
