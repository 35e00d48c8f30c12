// Package world runs real API servers and a gateway in front of them, as
// processes of their own, for the length of a test. It holds no test.
package world

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/xbernetes/xbernetes/test/lab/apiserver"
	"github.com/xbernetes/xbernetes/test/lab/certificate"
	"github.com/xbernetes/xbernetes/test/lab/network"
	"github.com/xbernetes/xbernetes/test/lab/process"
	"github.com/xbernetes/xbernetes/test/lab/program"
	"github.com/xbernetes/xbernetes/test/lab/wait"
	"github.com/xbernetes/xbernetes/test/lab/xbetcd"
)

// startsWithin is how long a server may take until it is ready, on a slow and
// busy machine. It is no promise.
const startsWithin = 4 * time.Minute

// A Server is one API server.
type Server struct {
	*process.Process
	Name       string
	URL        string
	CAFile     string
	Kubeconfig string // the administrator's
	Config     *rest.Config

	argv []string // to start it again
}

// A World is three API servers, each with a store of its own, and a gateway:
// a stock kube-apiserver on xb etcd, which knows the callers; a sample-apiserver
// on xb etcd, to which the gateway is a front proxy; and xb server, at which the
// gateway impersonates.
type World struct {
	Dir     string
	Core    *Server
	Sample  *Server
	XB      *Server
	Gateway *Server
	Servers string // the gateway's servers file

	frontProxy *certificate.Authority
	proxyCert  string
	proxyKey   string
	tokenFile  string
}

// Token is the administrator's at the core server.
const Token = "the-administrators-token"

// Start starts all of a world and waits until it is ready.
func Start(t testing.TB) *World {
	t.Helper()
	w := &World{Dir: t.TempDir()}
	w.frontProxy = certificate.NewAuthority(t, w.Dir, "front-proxy-ca")
	w.proxyCert, w.proxyKey = w.frontProxy.Issue(t, "front-proxy", time.Now().Add(time.Hour))
	w.tokenFile = filepath.Join(w.Dir, "token")
	write(t, w.tokenFile, []byte(Token))
	w.Core = w.startCore(t)
	w.XB = StartXB(t, w.Dir)
	w.Core.Await(t)
	w.XB.Await(t)
	w.Sample = StartSample(t, w.Dir, w.Core.Kubeconfig)
	w.Sample.at(t, w.Dir, Token)
	w.Sample.Await(t)
	w.Servers = filepath.Join(w.Dir, "servers.yaml")
	w.Write(t, w.CoreEntry(t), w.SampleEntry(t), w.XBEntry(t))
	w.Gateway = w.StartGateway(t, "gateway", "--servers", w.Servers)
	return w
}

func (w *World) startCore(t testing.TB) *Server {
	t.Helper()
	port := network.FreePort()
	s := &Server{Name: "core", URL: "https://127.0.0.1:" + port, CAFile: filepath.Join(w.Dir, "core", "apiserver.crt")}
	signer, tokens := filepath.Join(w.Dir, "signer.key"), filepath.Join(w.Dir, "tokens.csv")
	if err := certificate.WriteNewKey(signer); err != nil {
		t.Fatal(err)
	}
	write(t, tokens, []byte(Token+`,admin,admin,"system:masters"`+"\n"+`nobodys-token,nobody,nobody`+"\n"))
	flags := apiserver.Config{
		Etcd: xbetcd.Start(t, nil, xbetcd.FileJournal(t)).Endpoint, Host: "127.0.0.1", Port: port,
		CertDir: filepath.Dir(s.CAFile), Tokens: tokens, Signer: signer, Services: "10.0.0.0/24",
	}.Flags(
		"--etcd-compaction-interval=1m", // so that nobody waits ten minutes for an old list to expire
		// As every cluster has it, for aggregated servers to learn of.
		"--requestheader-client-ca-file="+w.frontProxy.CertFile, "--requestheader-allowed-names=front-proxy",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
	)
	s.Process = process.Spawn(t, nil, s.Name, nil, append([]string{program.Need(t, "kube-apiserver")}, flags...)...)
	s.at(t, w.Dir, Token)
	return s
}

// StartSample starts a sample-apiserver, which knows its callers by the word of
// a core server. It does not wait until it is ready.
func StartSample(t testing.TB, dir, core string) *Server {
	t.Helper()
	port := network.FreePort()
	s := &Server{Name: "sample", URL: "https://127.0.0.1:" + port, CAFile: filepath.Join(dir, "sample", "apiserver.crt")}
	s.argv = []string{program.Need(t, "sample-apiserver"),
		"--etcd-servers=" + xbetcd.Start(t, nil, xbetcd.FileJournal(t)).Endpoint,
		"--bind-address=127.0.0.1", "--secure-port=" + port, "--cert-dir=" + filepath.Dir(s.CAFile),
		"--kubeconfig=" + core, "--authentication-kubeconfig=" + core, "--authorization-kubeconfig=" + core}
	s.Restart(t)
	return s
}

// Restart starts the server, which was killed, at the same address.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Process = process.Spawn(t, nil, s.Name, nil, s.argv...)
}

// StartXB starts an xb server on a file journal, and does not wait until it is
// ready.
func StartXB(t testing.TB, dir string) *Server {
	t.Helper()
	data := filepath.Join(dir, "xb")
	listen := "127.0.0.1:" + network.FreePort()
	return &Server{Name: "xb", URL: "https://" + listen, Kubeconfig: filepath.Join(data, "kubeconfig"),
		Process: process.Spawn(t, nil, "xb", nil, program.Need(t, "xb"), "server", "--data-dir", data, "--listen", listen)}
}

// at writes the kubeconfig of somebody with a token, who asks this server.
func (s *Server) at(t testing.TB, dir, token string) {
	t.Helper()
	s.Kubeconfig = filepath.Join(dir, s.Name+".kubeconfig")
	WriteKubeconfig(t, s.Kubeconfig, s.URL, s.CAFile, token)
}

// WriteKubeconfig writes a kubeconfig of somebody with a token.
func WriteKubeconfig(t testing.TB, file, url, caFile, token string) {
	t.Helper()
	write(t, file, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: lab, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: caller, user: {token: %q}}]
contexts: [{name: lab, context: {cluster: lab, user: caller, namespace: default}}]
current-context: lab
`, url, caFile, token))
}

// Await waits until the server is ready.
func (s *Server) Await(t testing.TB) {
	t.Helper()
	wait.Poll(t, startsWithin, s.Name+" is ready", func(ctx context.Context) error {
		if err := s.Alive(); err != nil {
			return err
		}
		config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
		if err != nil {
			return err
		}
		config.QPS, config.Timeout = -1, 5*time.Second
		config.WarningHandler = rest.NoWarnings{} // of the sample's old versions, a line a request
		clients, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		config.Timeout = 0
		s.Config = config
		return clients.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// Clients are clients of the server's administrator.
func (s *Server) Clients(t testing.TB) (kubernetes.Interface, dynamic.Interface) {
	t.Helper()
	typed, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	dyn, err := dynamic.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	return typed, dyn
}

// TryKubectl runs kubectl as the server's administrator.
func (s *Server) TryKubectl(t testing.TB, stdin string, args ...string) (string, error) {
	t.Helper()
	return process.Run(t, nil, []string{"KUBECONFIG=" + s.Kubeconfig, "HOME=" + filepath.Dir(s.Kubeconfig)}, stdin, append([]string{program.Need(t, "kubectl")}, args...)...)
}

// Kubectl fails the test if kubectl fails.
func (s *Server) Kubectl(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	out, err := s.TryKubectl(t, stdin, args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}

// StartGateway starts a gateway that knows callers by the core server's word.
func (w *World) StartGateway(t testing.TB, name string, flags ...string) *Server {
	t.Helper()
	return StartGateway(t, w.Dir, name, w.Core.Kubeconfig, Token, flags...)
}

// StartGateway starts a gateway that knows callers by a core server's word, and
// waits until it is ready. The token is the caller's in its kubeconfig.
func StartGateway(t testing.TB, dir, name, core, token string, flags ...string) *Server {
	t.Helper()
	listen := "127.0.0.1:" + network.FreePort()
	data := filepath.Join(dir, name)
	s := &Server{Name: name, URL: "https://" + listen}
	s.argv = append([]string{program.Need(t, "xb"), "gateway", "--listen", listen, "--data-dir", data, "--authentication-kubeconfig", core}, flags...)
	s.Restart(t)
	// It makes itself an authority, of which its certificate is.
	wait.Poll(t, startsWithin, "the gateway's certificate", func(context.Context) error {
		if err := s.Alive(); err != nil {
			return err
		}
		found, err := filepath.Glob(filepath.Join(data, "pki", "ca.crt"))
		if err != nil || len(found) == 0 {
			return fmt.Errorf("there is none below %s", data)
		}
		s.CAFile = found[0]
		return nil
	})
	s.at(t, dir, token)
	s.Await(t)
	return s
}

// Write replaces the gateway's servers file, at one stroke.
func (w *World) Write(t testing.TB, entries ...string) {
	t.Helper()
	part := w.Servers + ".part"
	write(t, part, []byte(strings.Join(entries, "---\n")))
	if err := os.Rename(part, w.Servers); err != nil {
		t.Fatal(err)
	}
}

// Entry is a RemoteAPIServer, with further lines of its spec.
func Entry(t testing.TB, name, url, caFile string, spec ...string) string {
	t.Helper()
	text := fmt.Sprintf("apiVersion: aggregation.xbernetes.io/v1alpha1\nkind: RemoteAPIServer\nmetadata: {name: %s}\nspec:\n  url: %s\n", name, url)
	if caFile != "" {
		ca, err := os.ReadFile(caFile)
		if err != nil {
			t.Fatal(err)
		}
		text += "  caBundle: " + base64.StdEncoding.EncodeToString(ca) + "\n"
	}
	for _, line := range spec {
		text += "  " + line + "\n"
	}
	return text
}

// CoreEntry registers the kube-apiserver, which gets its callers' own tokens.
func (w *World) CoreEntry(t testing.TB, more ...string) string {
	t.Helper()
	return Entry(t, "core", w.Core.URL, w.Core.CAFile, append([]string{`groups: ["", apps, autoscaling, batch, policy, "*.k8s.io", "*.xbernetes.io", "*"]`, "priority: 100", "identity: {mode: PassThrough, credentials: {tokenFile: " + w.tokenFile + "}}"}, more...)...)
}

// SampleEntry registers the sample-apiserver, by front proxy headers.
func (w *World) SampleEntry(t testing.TB, more ...string) string {
	t.Helper()
	return Entry(t, "sample", w.Sample.URL, w.Sample.CAFile, append([]string{"groups: [wardle.example.com]", fmt.Sprintf("identity: {mode: FrontProxy, credentials: {clientCertificateFile: %s, clientKeyFile: %s}}", w.proxyCert, w.proxyKey)}, more...)...)
}

// XBEntry registers xb server, by impersonation.
func (w *World) XBEntry(t testing.TB, more ...string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(w.XB.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(w.Dir, "xb-ca.crt")
	for _, c := range config.Clusters {
		data := c.CertificateAuthorityData
		if c.CertificateAuthority != "" {
			if data, err = os.ReadFile(c.CertificateAuthority); err != nil {
				t.Fatal(err)
			}
		}
		write(t, ca, data)
	}
	return Entry(t, "xb", w.XB.URL, ca, append([]string{"groups: [example.xbernetes.dev]", "identity: {mode: Impersonate, credentials: {kubeconfig: " + w.XB.Kubeconfig + "}}"}, more...)...)
}

// WriteFile writes a file that only the test's user may read.
func WriteFile(t testing.TB, path, text string) {
	t.Helper()
	write(t, path, []byte(text))
}

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
