package peers

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/internal/kubeconfig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func kubeconfigOf(server, user string) string {
	return `{apiVersion: v1, kind: Config, current-context: x,
clusters: [{name: x, cluster: {server: "` + server + `"}}],
users: [{name: x, user: ` + user + `}],
contexts: [{name: x, context: {cluster: x, user: x}}, {name: w, context: {cluster: x, user: x}}]}`
}

func TestParse(t *testing.T) {
	for name, test := range map[string]struct {
		data, context string
		trust         kubeconfig.Trust
		want          string // of the error; "" is none
	}{
		"good":               {kubeconfigOf("https://b:6443", "{token: abc}"), "", kubeconfig.Inline, ""},
		"another context":    {kubeconfigOf("https://b:6443", "{token: abc}"), "w", kubeconfig.Full, ""},
		"no such context":    {kubeconfigOf("https://b:6443", "{token: abc}"), "z", kubeconfig.Full, `has no context "z"; set current-context`},
		"nothing":            {"", "", kubeconfig.Full, "is no kubeconfig: it names no cluster"},
		"not yaml":           {"\x00\x01{{{", "", kubeconfig.Full, "is no kubeconfig: "},
		"another object":     {`{"apiVersion": "v1", "kind": "Pod"}`, "", kubeconfig.Full, "is no kubeconfig: "},
		"a picture of words": {"hello, this is a readme\n", "", kubeconfig.Full, "is no kubeconfig: "},
		"a command, trusted": {kubeconfigOf("https://b", "{exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, interactiveMode: Never}}"), "", kubeconfig.Full, ""},
		"a command":          {kubeconfigOf("https://b", "{exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, interactiveMode: Never}}"), "", kubeconfig.Inline, "names a command to run"},
		"a file":             {kubeconfigOf("https://b", "{tokenFile: /etc/passwd}"), "", kubeconfig.Inline, "names a file"},
		"a file of the CA": {strings.Replace(kubeconfigOf("https://b", "{token: abc}"), "cluster: {", "cluster: {certificate-authority: /etc/passwd, ", 1),
			"", kubeconfig.Inline, "names a file"},
	} {
		t.Run(name, func(t *testing.T) {
			p := parse("b", "b.yaml", []byte(test.data), test.context, test.trust)
			if test.want == "" {
				if p.Err != nil || p.Config == nil {
					t.Fatalf("refused: %v", p.Err)
				}
				return
			}
			if p.Err == nil || !strings.Contains(p.Err.Error(), test.want) || !strings.HasPrefix(p.Err.Error(), "b.yaml: ") {
				t.Errorf("said %v; want %q", p.Err, test.want)
			}
			if p.Config != nil {
				t.Error("there is a config nevertheless")
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(kubeconfigOf("https://b:6443", "{token: abc}")))
	f.Add([]byte("clusters: [{}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := parse("b", "b.yaml", data, "", kubeconfig.Inline)
		if (p.Err == nil) != (p.Config != nil) {
			t.Fatalf("config %v and error %v", p.Config, p.Err)
		}
		if p.Config != nil && (p.Config.ExecProvider != nil || p.Config.BearerTokenFile != "" || p.Config.CertFile != "" || p.Config.KeyFile != "" || p.Config.CAFile != "") {
			t.Fatal("a kubeconfig that came over an API reaches outside itself")
		}
	})
}

// listen runs a source and gives what it finds, in turn.
func listen(t *testing.T, s Source) <-chan []Peer {
	ctx, cancel := context.WithCancel(t.Context())
	found, done := make(chan []Peer), make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Run(ctx, func(p []Peer) {
			select {
			case found <- p:
			case <-ctx.Done():
			}
		}); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return found
}

func write(t *testing.T, path, data string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

// until waits for what the source says to be as wanted.
func until(t *testing.T, found <-chan []Peer, what string, ok func(map[string]Peer) bool) map[string]Peer {
	t.Helper()
	for peers := range found {
		m := make(map[string]Peer)
		for _, p := range peers {
			m[p.Name] = p
		}
		if ok(m) {
			return m
		}
		t.Logf("not yet %s: %v", what, peers)
	}
	return nil
}

func TestFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kubeconfigs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "b.yaml"), kubeconfigOf("https://b:6443", "{token: abc}"))
	write(t, filepath.Join(dir, ".swp"), "half a file")
	found := listen(t, Folder(dir))
	m := until(t, found, "one", func(m map[string]Peer) bool { return len(m) == 1 && m["b"].Config != nil })
	before := m["b"].Fingerprint

	write(t, filepath.Join(dir, "c.kubeconfig"), "junk")
	until(t, found, "with a bad one", func(m map[string]Peer) bool {
		return len(m) == 2 && m["c"].Err != nil && m["c"].Config == nil && m["b"].Err == nil
	})
	write(t, filepath.Join(dir, "b.yaml"), kubeconfigOf("https://b:7443", "{token: abc}"))
	until(t, found, "changed", func(m map[string]Peer) bool {
		return m["b"].Fingerprint != before && m["b"].Config.Host == "https://b:7443"
	})
	write(t, filepath.Join(dir, "b.yaml"), "")
	until(t, found, "kept", func(m map[string]Peer) bool {
		return m["b"].Err != nil && m["b"].Config != nil && m["b"].Config.Host == "https://b:7443"
	})
	if err := os.Remove(filepath.Join(dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	until(t, found, "removed", func(m map[string]Peer) bool { _, ok := m["b"]; return !ok })
}

// A folder that cannot be read takes no peer away.
func TestFolderUnreadable(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "b"), kubeconfigOf("https://b", "{token: abc}"))
	f := &folder{path: dir}
	before := f.read(nil)
	write(t, filepath.Join(t.TempDir(), "file"), "")
	f.path = filepath.Join(dir, "b") // a file is no folder
	f2 := &folder{path: f.path}
	if now := f2.read(nil); len(now) != 1 || now[0].Err == nil {
		t.Fatalf("found %v", now)
	}
	f.path = dir
	if err := os.Rename(filepath.Join(dir, "b"), filepath.Join(dir, "c")); err != nil {
		t.Fatal(err)
	}
	if now := f.read(before); len(now) != 1 || now[0].Name != "c" {
		t.Fatalf("found %v", now)
	}
}

func TestFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	found := listen(t, Files(map[string]string{"b": path + "#w"}))
	until(t, found, "missing", func(m map[string]Peer) bool { return errors.Is(m["b"].Err, os.ErrNotExist) })
	write(t, path, kubeconfigOf("https://b", "{token: abc}"))
	until(t, found, "there", func(m map[string]Peer) bool { return m["b"].Config != nil })
}

// Nothing is said before every source has spoken, or peers would look gone.
func TestJoin(t *testing.T) {
	one, two := make(source), make(source)
	found := listen(t, Join(one, two))
	one <- []Peer{{Name: "b", Origin: "one"}}
	one <- []Peer{{Name: "b", Origin: "one"}}
	two <- []Peer{{Name: "b", Origin: "two"}, {Name: "c", Origin: "two"}}
	peers := <-found
	if len(peers) != 3 || peers[0].Err != nil || peers[1].Err == nil || !strings.Contains(peers[1].Err.Error(), "two names a second peer b, beside one") {
		t.Errorf("found %v", peers)
	}
}

type source chan []Peer

func (s source) Run(ctx context.Context, found func([]Peer)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case p := <-s:
			found(p)
		}
	}
}

func TestSecretsParse(t *testing.T) {
	secret := func(name, label string, data map[string][]byte) any {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "sync", Name: name, Labels: map[string]string{Label: label}}, Data: data}
	}
	good := map[string][]byte{"kubeconfig": []byte(kubeconfigOf("https://b", "{token: abc}"))}
	got := (&secrets{}).parse([]any{secret("one", "", good), secret("two", "b", good), secret("three", "", nil)})
	names := make([]string, len(got))
	for i, p := range got {
		names[i] = p.Name
	}
	if !slices.Equal(names, []string{"one", "three", "b"}) || got[1].Err == nil || got[0].Config == nil {
		t.Errorf("found %v", got)
	}
}
