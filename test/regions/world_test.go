// Package regions tests regions from outside, on real API servers that are far from each other,
// die and lose their connections: it runs the binary as users would, and reads what the regions
// store by itself. It never imports a package of the product.
//
// The binary is built, or taken from the environment variable XB_BIN.
package regions

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/xbernetes/xbernetes/test/lab/apiserver"
	"github.com/xbernetes/xbernetes/test/lab/certificate"
	"github.com/xbernetes/xbernetes/test/lab/network"
	"github.com/xbernetes/xbernetes/test/lab/process"
	"github.com/xbernetes/xbernetes/test/lab/program"
	"github.com/xbernetes/xbernetes/test/lab/wait"
	"github.com/xbernetes/xbernetes/test/lab/xbetcd"
)

// within ends waits that would hang. It is no promise.
const within = 4 * time.Minute

// server is one API server, which is a region or a service cluster.
type server struct {
	*process.Process
	name       string
	argv       []string // to start it again
	kubeconfig string   // the administrator's, without a link in between
	store      *xbetcd.Server
	kube       kubernetes.Interface
	dynamic    dynamic.Interface
	host       string // HOST:PORT
}

// stock is the region that is an unmodified kube-apiserver; all others are xb servers.
const stock = "quito"

// removable is the region that is removed. It is the home of no service cluster that works.
const removable = "milan"

// world is five regions on three continents, and two service clusters.
type world struct {
	*testing.T
	dir    string
	xb     string
	issuer *issuer

	regions  map[string]*server
	clusters map[string]*server          // by the name of the service cluster
	homes    map[string]string           // of the service clusters: region
	links    map[string]map[string]*link // by continent and region
	agents   map[string]*process.Process // by region, with a number behind it
	hosts    int                         // how many were given out

	removed atomic.Bool          // removable was removed, and has not joined again
	void    map[string]operation // the records that removable had when it was removed
}

func newWorld(t *testing.T) *world {
	w := &world{
		T: t, dir: t.TempDir(), xb: program.Need(t, "xb"), issuer: newIssuer(t),
		regions: map[string]*server{}, clusters: map[string]*server{}, links: map[string]map[string]*link{}, agents: map[string]*process.Process{},
		homes: map[string]string{"louvre": "paris", "kabuki": "tokyo"},
	}
	for name := range continents {
		if name == stock {
			w.regions[name] = w.stockServer(name)
		} else {
			w.regions[name] = w.xbServer(name)
		}
	}
	for name := range w.homes {
		w.clusters[name] = w.xbServer(name)
	}
	for _, s := range w.regions {
		w.ready(s)
	}
	for _, s := range w.clusters {
		w.ready(s)
	}
	w.start(w.Name()+"-controllers", program.Need(t, "kube-controller-manager"), "--kubeconfig", w.regions[stock].kubeconfig,
		"--controllers=namespace-controller", "--leader-elect=false", "--secure-port=0", "--use-service-account-credentials=false", "--concurrent-namespace-syncs=10")
	w.connect()
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// path is a file of the test's folder; the folders above it are made.
func (w *world) path(parts ...string) string {
	file := filepath.Join(append([]string{w.dir}, parts...)...)
	w.must(os.MkdirAll(filepath.Dir(file), 0o700))
	return file
}

// host is an address of this machine's loopback that no other server has. Connections come from
// 127.0.0.1: so no connection can have the port of a server while that is dead.
func (w *world) host() string {
	w.hosts++
	return fmt.Sprintf("127.0.0.%d", 10+w.hosts)
}

func (w *world) start(name string, argv ...string) *process.Process {
	w.Helper()
	return process.Spawn(w.T, nil, name, nil, argv...)
}

func (w *world) xbServer(name string) *server {
	data := w.path(name, "data")
	s := &server{name: name, kubeconfig: filepath.Join(data, "kubeconfig"), host: network.FreeAddr(w.host())}
	s.argv = []string{w.xb, "server", "--journal", "file://" + w.path(name, "journal"), "--data-dir", data, "--listen", s.host,
		"--authentication-config", w.issuer.config}
	s.Process = w.start(name, s.argv...)
	return s
}

func (w *world) stockServer(name string) *server {
	s := &server{name: name, kubeconfig: w.path(name, "kubeconfig"), host: network.FreeAddr(w.host()),
		store: xbetcd.Start(w, nil, "file://"+w.path(name, "journal"), "--listen", network.FreeAddr(w.host()))}
	host, port, _ := strings.Cut(s.host, ":")
	const token = "the-administrators-token"
	signer, tokens, certs := w.path(name, "signer.key"), w.path(name, "tokens.csv"), w.path(name, "certs", "apiserver.crt")
	w.must(certificate.WriteNewKey(signer))
	w.must(os.WriteFile(tokens, []byte(token+`,admin,admin,"system:masters"`+"\n"), 0o600))
	config := clientcmdapi.NewConfig()
	config.Clusters["a"] = &clientcmdapi.Cluster{Server: "https://" + s.host, CertificateAuthority: certs}
	config.AuthInfos["a"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["a"] = &clientcmdapi.Context{Cluster: "a", AuthInfo: "a"}
	config.CurrentContext = "a"
	w.must(clientcmd.WriteToFile(*config, s.kubeconfig))
	s.argv = append([]string{program.Need(w, "kube-apiserver")}, apiserver.Config{
		Etcd: s.store.Endpoint, Host: host, Port: port, CertDir: filepath.Dir(certs), Tokens: tokens, Signer: signer, Services: "10.96.0.0/16",
	}.Flags("--authentication-config="+w.issuer.config)...)
	s.Process = w.start(name, s.argv...)
	return s
}

// ready waits until a server answers.
func (w *world) ready(s *server) {
	w.Helper()
	w.comes(s.name+" answers", func(ctx context.Context) error {
		if err := s.Alive(); err != nil {
			return err
		}
		if s.kube == nil {
			config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
			if err != nil {
				return err // it has no kubeconfig or certificate yet
			}
			config.QPS = -1
			if s.dynamic, err = dynamic.NewForConfig(config); err != nil {
				return err
			}
			if s.kube, err = kubernetes.NewForConfig(config); err != nil {
				return err
			}
		}
		_, err := s.kube.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// comes waits until check returns nil.
func (w *world) comes(what string, check func(context.Context) error) {
	w.Helper()
	wait.Poll(w, within, what, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		return check(ctx)
	})
}

// restart starts a server again after Kill.
func (w *world) restart(s *server) {
	w.Helper()
	s.Process = w.start(s.name, s.argv...)
}

// connect makes the links from each continent to each region, and a file of regions there.
func (w *world) connect() {
	for _, from := range continents {
		if w.links[from] != nil {
			continue
		}
		w.links[from] = map[string]*link{}
		list := "register: paris\nregions:\n"
		for name, s := range w.regions {
			l := newLink(w.T, s.host, roundTrip(from, continents[name]))
			w.links[from][name] = l
			w.must(through(s.kubeconfig, l.addr, "", w.path(from, name)))
			list += fmt.Sprintf("  %s: %s\n", name, name)
		}
		w.must(os.WriteFile(w.file(from), []byte(list), 0o600))
	}
}

// file is the file of regions of a continent.
func (w *world) file(continent string) string { return w.path(continent, "regions.yaml") }

// through writes a kubeconfig that leads to another address, as another user if as is given.
func through(kubeconfig, addr, as, to string) error {
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		return err
	}
	if err := clientcmdapi.FlattenConfig(config); err != nil {
		return err
	}
	for _, c := range config.Clusters {
		u, err := url.Parse(c.Server)
		if err != nil {
			return err
		}
		u.Host = addr
		c.Server = u.String()
	}
	for _, user := range config.AuthInfos {
		user.Impersonate = as
	}
	return clientcmd.WriteToFile(*config, to)
}

// apply applies shipped manifests to a region.
func (w *world) apply(s *server, files ...string) {
	w.Helper()
	for _, file := range files {
		_, err := process.Run(w, nil, nil, "", program.Need(w, "kubectl"), "--kubeconfig", s.kubeconfig, "apply", "-f", filepath.Join(program.Repository(), "deploy", "region", file))
		w.must(err)
	}
}

// agent starts an agent of a region, with the rights that are shipped for it.
func (w *world) agent(region, id string) {
	w.Helper()
	kubeconfig := w.path(region, "agent.kubeconfig")
	w.must(through(w.regions[region].kubeconfig, w.regions[region].host, "system:serviceaccount:xb-region:xb-region-agent", kubeconfig))
	w.agents[region+id] = w.start(region+"-agent"+id, w.xb, "region", "agent", "--region", region, "--kubeconfig", kubeconfig, "--identity", region+id,
		"--regions", w.file(continents[region]), "--finish-after", "3s", "--listen", "127.0.0.1:0")
}

// run runs xb in a continent, and fails the test if it fails.
func (w *world) run(continent string, args ...string) string {
	w.Helper()
	out, err := process.Run(w, nil, nil, "", append([]string{w.xb}, append(args, "--regions", w.file(continent), "--timeout", "2m")...)...)
	w.must(err)
	return out
}

// populate has all regions join, with an agent in each, and two in paris; a provider registers
// the service clusters.
func (w *world) populate() {
	w.Helper()
	w.run("eu", "region", "join", "paris")
	for name, s := range w.regions {
		if name != "paris" {
			w.run("eu", "region", "join", name)
		}
		w.apply(s, "roles.yaml", "agent.yaml")
		w.agent(name, "")
	}
	w.agent("paris", "2")
	w.run("eu", "account", "create", "initech", "--role", "provider", "--region", "milan")
	for name, home := range w.homes {
		kubeconfig, err := os.ReadFile(w.clusters[name].kubeconfig)
		w.must(err)
		w.comes("the provider's namespace in "+home, func(ctx context.Context) error {
			_, err := w.regions[home].kube.CoreV1().Secrets("initech").Create(ctx, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"region.xbernetes.io/service-cluster": name}},
				Data:       map[string][]byte{"kubeconfig": kubeconfig},
			}, metav1.CreateOptions{})
			return err
		})
		w.run("eu", "servicecluster", "create", name, "--kubeconfig-secret", "initech/"+name, "--region", home)
	}
}
