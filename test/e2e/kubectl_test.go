package e2e

import (
	"bufio"
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/test/lab/process"
	"github.com/xbernetes/xbernetes/test/lab/program"
	"github.com/xbernetes/xbernetes/test/lab/wait"
)

// widgetYAML is a widget as a user would write it. KEY: VALUE lines go into its spec.
func widgetYAML(name string, spec ...string) string {
	return "apiVersion: example.xbernetes.dev/v1\nkind: Widget\nmetadata:\n  name: " + name + "\nspec:\n  " + strings.Join(spec, "\n  ") + "\n"
}

// TestKubectl walks through what people do with kubectl, unmodified.
func TestKubectl(t *testing.T) {
	s := newServer(t, nil, "server", "", nil)
	s.up(t)
	s.kubectl(t, "", "apply", "-f", widgetFile(t))
	s.serves(t, widgets)
	for name, steps := range map[string]func(*testing.T, *server){
		"apply and diff":    kubectlApply,
		"server-side apply": kubectlServerSide,
		"patch":             kubectlPatch,
		"watch and wait":    kubectlWatch,
		"discovery":         kubectlDiscovery,
		"rights":            kubectlRights,
		"deletion":          kubectlDelete,
		"too large":         kubectlTooLarge,
	} {
		t.Run(name, func(t *testing.T) { steps(t, s) })
	}
}

// prints fails the test unless kubectl prints all of these.
func (s *server) prints(t *testing.T, want []string, stdin string, args ...string) {
	t.Helper()
	got := s.kubectl(t, stdin, args...)
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("kubectl %s prints:\n%s\nwant %q in it", strings.Join(args, " "), got, w)
		}
	}
}

// refuses fails the test unless kubectl ends with an error that says all of these.
func (s *server) refuses(t *testing.T, want []string, stdin string, args ...string) {
	t.Helper()
	out, err := s.tryKubectl(t, stdin, args...)
	if err == nil {
		t.Errorf("kubectl %s succeeds: %s; want an error", strings.Join(args, " "), out)
		return
	}
	for _, w := range want {
		if !strings.Contains(out+err.Error(), w) {
			t.Errorf("kubectl %s says %v; want %q in it", strings.Join(args, " "), err, w)
		}
	}
}

func kubectlApply(t *testing.T, s *server) {
	s.prints(t, []string{"widget.example.xbernetes.dev/applied created"}, widgetYAML("applied", "size: 2"), "apply", "-f", "-")
	s.prints(t, []string{"applied unchanged"}, widgetYAML("applied", "size: 2"), "apply", "-f", "-")
	// diff ends with 1 where there is a difference, and changes nothing.
	s.refuses(t, []string{"-  size: 2", "+  size: 4"}, widgetYAML("applied", "size: 4"), "diff", "-f", "-")
	s.prints(t, []string{"configured (server dry run)"}, widgetYAML("applied", "size: 4"), "apply", "--dry-run=server", "-f", "-")
	s.prints(t, []string{"2 grey"}, "", "get", "widget", "applied", "-o", "jsonpath={.spec.size} {.spec.color}")
	s.prints(t, []string{"applied configured"}, widgetYAML("applied", "size: 4"), "apply", "-f", "-")
	s.refuses(t, []string{"spec.size", "should be greater than or equal to 0"}, widgetYAML("wrong", "size: -1"), "apply", "-f", "-")
	s.refuses(t, []string{"a pink widget is larger than 3"}, widgetYAML("wrong", "color: pink"), "apply", "-f", "-")
	s.refuses(t, []string{"unknown field", "spec.colour"}, widgetYAML("wrong", "colour: red"), "apply", "-f", "-")
	s.refuses(t, []string{"NotFound"}, "", "get", "widget", "wrong")
}

func kubectlServerSide(t *testing.T, s *server) {
	apply := func(manager string, more ...string) []string {
		return append([]string{"apply", "--server-side", "--field-manager=" + manager, "-f", "-"}, more...)
	}
	s.prints(t, []string{"serverside-applied"}, widgetYAML("owned", "size: 2", "color: red"), apply("one")...)
	s.prints(t, []string{"serverside-applied"}, widgetYAML("owned", "note: mine"), apply("two")...)
	s.refuses(t, []string{"conflict", `"one"`, ".spec.size"}, widgetYAML("owned", "size: 9", "note: mine"), apply("two")...)
	s.prints(t, []string{"2 red mine"}, "", "get", "wg", "owned", "-o", "jsonpath={.spec.size} {.spec.color} {.spec.note}")
	s.prints(t, []string{"serverside-applied"}, widgetYAML("owned", "size: 9", "note: mine"), apply("two", "--force-conflicts")...)
	// What its last owner no longer names is gone, or back at its default.
	s.prints(t, []string{"serverside-applied"}, widgetYAML("owned", "size: 9"), apply("two")...)
	s.prints(t, []string{"[9][red][]"}, "", "get", "wg", "owned", "-o", "jsonpath=[{.spec.size}][{.spec.color}][{.spec.note}]")
	s.prints(t, []string{"manager: one", "manager: two"}, "", "get", "wg", "owned", "-o", "yaml", "--show-managed-fields")
}

func kubectlPatch(t *testing.T, s *server) {
	s.kubectl(t, widgetYAML("patched", "size: 1", "tags: [a]"), "create", "-f", "-")
	s.kubectl(t, "", "patch", "wg", "patched", "--type=merge", "-p", `{"spec":{"size":2,"tags":["b"]}}`)
	s.kubectl(t, "", "patch", "wg", "patched", "--type=json", "-p", `[{"op":"test","path":"/spec/size","value":2},{"op":"add","path":"/spec/tags/-","value":"c"}]`)
	s.prints(t, []string{`2 ["b","c"]`}, "", "get", "wg", "patched", "-o", "jsonpath={.spec.size} {.spec.tags}")
	s.refuses(t, []string{"the server rejected our request due to an error in our request"}, "", "patch", "wg", "patched", "--type=json", "-p", `[{"op":"test","path":"/spec/size","value":3}]`)
	s.kubectl(t, "", "patch", "wg", "patched", "--subresource=status", "--type=merge", "-p", `{"spec":{"size":99},"status":{"phase":"Made"}}`)
	s.prints(t, []string{"2 Made"}, "", "get", "wg", "patched", "-o", "jsonpath={.spec.size} {.status.phase}")
	s.kubectl(t, "", "scale", "wg/patched", "--replicas=6")
	s.prints(t, []string{"6"}, "", "get", "wg", "patched", "-o", "jsonpath={.spec.size}")
	// Strategic merge patches are for types that are compiled in.
	s.kubectl(t, "", "create", "configmap", "patched", "--from-literal=a=1")
	s.kubectl(t, "", "patch", "configmap", "patched", "--type=strategic", "-p", `{"data":{"b":"2"},"metadata":{"finalizers":["example.xbernetes.dev/one"]}}`)
	s.kubectl(t, "", "patch", "configmap", "patched", "--type=strategic", "-p", `{"metadata":{"finalizers":["example.xbernetes.dev/two"]}}`)
	s.prints(t, []string{"1 2", "/one", "/two"}, "", "get", "configmap", "patched", "-o", "jsonpath={.data.a} {.data.b} {.metadata.finalizers}")
	s.kubectl(t, "", "patch", "configmap", "patched", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	s.refuses(t, []string{"strategic-merge-patch+json is not supported by example.xbernetes.dev/v1, Kind=Widget"}, "", "patch", "wg", "patched", "--type=strategic", "-p", `{"spec":{"size":2}}`)
}

// kubectlWatch reads `get -w` while it runs, and waits for a condition and a field.
func kubectlWatch(t *testing.T, s *server) {
	s.kubectl(t, widgetYAML("watched", "size: 1"), "create", "-f", "-")
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	watching := exec.CommandContext(ctx, program.Need(t, "kubectl"), "get", "wg", "watched", "-w", "-o", `jsonpath={.spec.size}{.status.phase}{"\n"}`)
	watching.Env = append(process.PlainEnv(), "KUBECONFIG="+s.kubeconfig(), "HOME="+filepath.Dir(s.dataDir))
	out, err := watching.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := watching.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	next := func(want string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("get -w prints %q, %v; want %q", lines.Text(), lines.Err(), want)
		}
	}
	next("1")
	s.kubectl(t, "", "patch", "wg", "watched", "--type=merge", "-p", `{"spec":{"size":2}}`)
	next("2")
	waited := make(chan error, 2)
	for _, condition := range []string{"condition=Ready", "jsonpath={.status.phase}=Made"} {
		go func() {
			_, err := s.tryKubectl(t, "", "wait", "wg/watched", "--for="+condition, "--timeout=50s")
			waited <- err
		}()
	}
	s.kubectl(t, "", "patch", "wg", "watched", "--subresource=status", "--type=merge", "-p", `{"status":{"phase":"Made","conditions":[{"type":"Ready","status":"True"}]}}`)
	next("2Made")
	for range 2 {
		if err := <-waited; err != nil {
			t.Error(err)
		}
	}
	s.refuses(t, []string{"timed out waiting"}, "", "wait", "wg/watched", "--for=condition=Ready=False", "--timeout=1s")
	cancel()
	_ = watching.Wait() // it was killed
}

func kubectlDiscovery(t *testing.T, s *server) {
	wait.Poll(t, 60*time.Second, "the schema is published", func(context.Context) error {
		_, err := s.tryKubectl(t, "", "explain", "widgets")
		return err
	})
	s.prints(t, []string{"KIND:       Widget", "A widget, which a vendor makes for a tenant.", "status", "<Object>"}, "", "explain", "widgets")
	s.prints(t, []string{"conditions", "lastTransitionTime", "tags", "<[]string>"}, "", "explain", "widgets", "--recursive")
	s.prints(t, []string{"How large the widget is."}, "", "explain", "wg.spec.size")
	s.prints(t, []string{"widgets", "wg", "customresourcedefinitions", "configmaps", "leases", "roles"}, "", "api-resources")
	s.prints(t, []string{"widgets.example.xbernetes.dev"}, "", "api-resources", "--api-group=example.xbernetes.dev", "-o", "name")
	s.prints(t, []string{"example.xbernetes.dev/v1", "apiextensions.k8s.io/v1"}, "", "api-versions")
	s.prints(t, []string{"Server Version: v1."}, "", "version")
	s.kubectl(t, widgetYAML("shown", "size: 5", "color: teal"), "create", "-f", "-")
	s.prints(t, []string{"NAME", "SIZE", "PHASE", "shown"}, "", "get", "widgets")
	s.prints(t, []string{"shown"}, "", "get", "wg", "--field-selector", "spec.color=teal", "-o", "name")
	s.prints(t, []string{"Name:", "shown", "teal"}, "", "describe", "wg", "shown")
}

func kubectlRights(t *testing.T, s *server) {
	s.kubectl(t, "", "create", "serviceaccount", "reader")
	s.kubectl(t, "", "create", "role", "reader", "--verb=get,list", "--resource=widgets.example.xbernetes.dev")
	s.kubectl(t, "", "create", "rolebinding", "reader", "--role=reader", "--serviceaccount=default:reader")
	as := "--as=system:serviceaccount:default:reader"
	s.prints(t, []string{"yes"}, "", "auth", "can-i", "list", "widgets", as)
	s.refuses(t, []string{"no"}, "", "auth", "can-i", "delete", "widgets", as)
	s.prints(t, []string{"yes"}, "", "auth", "can-i", "*", "*")
	s.prints(t, []string{"system:serviceaccount:default:reader"}, "", "auth", "whoami", as)
	s.refuses(t, []string{"forbidden"}, "", "get", "configmaps", as)
	// And with a token of its own rather than in its name. A certificate would
	// win over the token, so this kubeconfig has none.
	token := strings.TrimSpace(s.kubectl(t, "", "create", "token", "reader"))
	config := filepath.Join(t.TempDir(), "kubeconfig")
	server := strings.TrimSpace(s.kubectl(t, "", "config", "view", "-o", "jsonpath={.clusters[0].cluster.server}"))
	for _, args := range [][]string{
		{"set-cluster", "c", "--server=" + server, "--insecure-skip-tls-verify"},
		{"set-credentials", "u", "--token=" + token},
		{"set-context", "x", "--cluster=c", "--user=u"},
		{"use-context", "x"},
	} {
		s.kubectl(t, "", append([]string{"config", "--kubeconfig=" + config}, args...)...)
	}
	s.prints(t, nil, "", "--kubeconfig="+config, "get", "widgets")
	s.refuses(t, []string{"forbidden", "system:serviceaccount:default:reader"}, "", "--kubeconfig="+config, "get", "configmaps")
}

func kubectlDelete(t *testing.T, s *server) {
	s.kubectl(t, "", "create", "namespace", "passing")
	for _, name := range []string{"one", "two", "three"} {
		s.kubectl(t, widgetYAML(name, "size: 1"), "create", "-n", "passing", "-f", "-")
	}
	s.kubectl(t, "", "label", "-n", "passing", "wg", "two", "three", "keep=no")
	s.prints(t, []string{`"two" deleted`, `"three" deleted`}, "", "delete", "-n", "passing", "wg", "-l", "keep=no")
	s.prints(t, []string{"widget.example.xbernetes.dev/one"}, "", "get", "-n", "passing", "wg", "-o", "name")
	s.refuses(t, []string{"NotFound"}, "", "delete", "-n", "passing", "wg", "two")
	s.kubectl(t, "", "delete", "namespace", "passing", "--timeout=80s")
	s.refuses(t, []string{"NotFound"}, "", "get", "-n", "passing", "wg", "one")
}

// kubectlTooLarge: what is above etcd's limit of 1.5 MiB gets etcd's error.
func kubectlTooLarge(t *testing.T, s *server) {
	s.refuses(t, []string{"etcdserver: request is too large"}, widgetYAML("large", "note: "+strings.Repeat("x", 1700<<10)), "create", "-f", "-")
	s.refuses(t, []string{"NotFound"}, "", "get", "wg", "large")
	s.kubectl(t, widgetYAML("large", "note: "+strings.Repeat("x", 1300<<10)), "create", "-f", "-")
	s.kubectl(t, "", "delete", "wg", "large")
}
