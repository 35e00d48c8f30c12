package controlplane

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// kubectl works with the kubeconfig that the server wrote.
func TestKubectl(t *testing.T) {
	t.Parallel()
	s := servers(t).a
	command := func(args ...string) *exec.Cmd {
		ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
		t.Cleanup(cancel)
		cmd := exec.CommandContext(ctx, os.Args[0], append([]string{"--kubeconfig", filepath.Join(s.dir, "kubeconfig"), "--cache-dir", t.TempDir()}, args...)...)
		cmd.Env = append(os.Environ(), childKubectl+"=1")
		return cmd
	}
	run := func(stdin string, args ...string) (string, error) {
		cmd := command(args...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	want := func(stdin, substring string, args ...string) {
		t.Helper()
		out, err := run(stdin, args...)
		if err != nil || !strings.Contains(out, substring) {
			t.Fatalf("kubectl %s: %v\n%s\nwant %q", strings.Join(args, " "), err, out, substring)
		}
	}
	const crd = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lamps.home.example}
spec:
  group: home.example
  scope: Namespaced
  names: {plural: lamps, singular: lamp, kind: Lamp}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns: [{name: Watts, type: integer, jsonPath: .spec.watts}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {watts: {type: integer, maximum: 100, description: How bright it is.}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`
	const lamp = `
apiVersion: home.example/v1
kind: Lamp
metadata: {name: desk, namespace: default}
spec: {watts: 7}
`
	want(crd, "created", "apply", "-f", "-")
	want("", "condition met", "wait", "--for=condition=Established", "--timeout=60s", "crd/lamps.home.example")
	until(t, "kubectl knows lamps", func(context.Context) (bool, error) {
		out, _ := run("", "api-resources", "--api-group=home.example")
		return strings.Contains(out, "Lamp"), nil
	})

	watch := command("get", "lamps", "-w", "--no-headers")
	pipe, err := watch.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var complaints bytes.Buffer
	watch.Stderr = &complaints
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for sc := bufio.NewScanner(pipe); sc.Scan(); {
			lines <- strings.Join(strings.Fields(sc.Text()), " ")
		}
	}()
	seen := func(want string) {
		t.Helper()
		for {
			select {
			case l, ok := <-lines:
				if !ok {
					t.Fatalf("kubectl get -w ended: %s", complaints.String())
				}
				if strings.HasPrefix(l, want) {
					return
				}
			case <-time.After(startTimeout):
				t.Fatalf("kubectl get -w never showed %q", want)
			}
		}
	}

	want(lamp, "lamp.home.example/desk created", "apply", "-f", "-")
	seen("desk 7")
	want(lamp, "unchanged", "apply", "-f", "-")
	want(strings.Replace(lamp, "7", "9", 1), "configured", "apply", "-f", "-")
	seen("desk 9")
	want("", "patched", "patch", "lamp", "desk", "--type=merge", "-p", `{"spec":{"watts":11}}`)
	seen("desk 11")
	if out, err := run(lamp, "apply", "--server-side", "--field-manager=other", "-f", "-"); err == nil || !strings.Contains(out, "conflict") {
		t.Fatalf("server-side apply over another's field: %v\n%s", err, out)
	}
	want(strings.Replace(lamp, "7", "12", 1), "serverside-applied", "apply", "--server-side", "--force-conflicts", "--field-manager=other", "-f", "-")
	seen("desk 12")
	if out, err := run("", "patch", "lamp", "desk", "--type=merge", "-p", `{"spec":{"watts":1000}}`); err == nil || !strings.Contains(out, "should be less than or equal to 100") {
		t.Fatalf("value against the schema: %v\n%s", err, out)
	}
	want("", "patched", "patch", "lamp", "desk", "--subresource=status", "--type=merge", "-p", `{"status":{"conditions":[{"type":"Lit","status":"True"}]}}`)
	want("", "condition met", "wait", "--for=condition=Lit", "--timeout=60s", "lamp/desk")
	until(t, "kubectl explain knows the schema", func(context.Context) (bool, error) {
		out, err := run("", "explain", "lamp.spec.watts")
		return err == nil && strings.Contains(out, "How bright it is."), nil
	})
	want("", "yes", "auth", "can-i", "create", "lamps")
	if out, _ := run("", "auth", "can-i", "create", "lamps", "--as", "stranger"); !strings.Contains(out, "no") {
		t.Fatalf("a stranger can create lamps: %s", out)
	}
	want("", "deleted", "delete", "lamp", "desk")
	want("", "deleted", "delete", "crd", "lamps.home.example")
	if err := watch.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = watch.Wait()
}
