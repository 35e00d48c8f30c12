package servicesync

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/bench/measure"
	"github.com/xbernetes/xbernetes/test/lab/cluster"
	"github.com/xbernetes/xbernetes/test/lab/process"
)

// bed is two clusters with a controller each, and a third for the store.
type bed struct {
	lab         *cluster.Lab
	clusters    []*cluster.Cluster
	a, b        *cluster.Cluster // the first two
	controllers []*process.Process
	// How the bench changes a's slices and watches b's: as Kubernetes' own
	// controllers do, in protobuf.
	changer, watcher kubernetes.Interface
	// changeOne makes change number n, which is of Service i.
	changeOne func(ctx context.Context, i, n int) error
}

// inProtobuf is a client that speaks as Kubernetes' own controllers do, does not
// pace itself, and costs the API server as little as it can.
func inProtobuf(c *cluster.Cluster) (kubernetes.Interface, error) {
	config := rest.CopyConfig(c.Config)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	config.QPS, config.DisableCompression, config.WarningHandler = -1, true, rest.NoWarnings{}
	return kubernetes.NewForConfig(config)
}

func (s *bed) close() {
	measure.End(s.controllers...)
	closeLab(s.lab)
}

// newLab starts a lab in a folder that no other has had: clients of Kubernetes
// take a certificate in a file of the same name for the same.
func newLab(ctx context.Context, cfg measure.Config, name string) (*cluster.Lab, error) {
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(cfg.Dir, name+"-")
	if err != nil {
		return nil, err
	}
	l, err := cluster.New(ctx, dir)
	if l != nil {
		// A collection in one API server takes half a core for a second, which on two
		// cores that are full everybody waits for. Where they have cores of their own
		// nobody would notice; here they do not collect while there is room.
		l.APIServerEnv = []string{"GOGC=off", "GOMEMLIMIT=6GiB"}
		l.NoControllers = true // they have no hand in Services without selectors; see answerWhileChanging
	}
	return l, err
}

// closeLab ends a lab and removes its data, which are gigabytes.
func closeLab(l *cluster.Lab) {
	l.Close()
	if err := os.RemoveAll(l.Dir); err != nil {
		fmt.Fprintln(os.Stderr, "servicesync:", err)
	}
}

// newBed starts clusters of these names in a lab. The first two are a and b, and
// have the namespace.
func newBed(ctx context.Context, l *cluster.Lab, onNetwork bool, names ...string) (*bed, error) {
	s := &bed{lab: l}
	for i, name := range names {
		c, err := l.StartCluster(ctx, i+1, name, onNetwork)
		if err == nil {
			err = c.InstallCRDs(ctx)
		}
		if err != nil {
			return s, err
		}
		s.clusters = append(s.clusters, c)
	}
	s.a, s.b = s.clusters[0], s.clusters[1]
	for _, c := range s.clusters[:2] {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		if _, err := c.Client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return s, err
		}
	}
	var err error
	if s.changer, err = inProtobuf(s.a); err == nil {
		s.watcher, err = inProtobuf(s.b)
	}
	return s, err
}

// startSync starts the clusters and, once a has its Services, the controllers.
func startSync(ctx context.Context, cfg measure.Config, transport string, services int) (*bed, error) {
	l, err := newLab(ctx, cfg, "servicesync")
	if err != nil {
		return nil, err
	}
	names := []string{"alpha", "beta"}
	if transport == throughStore {
		names = append(names, "store")
	}
	s, err := newBed(ctx, l, cluster.CanHaveNodes() == nil, names...)
	if err == nil {
		err = s.prepare(ctx, services)
	}
	if err == nil {
		err = s.startXB(cfg)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// startXB starts an xb servicesync in a and in b. They meet in the third cluster,
// if there is one.
func (s *bed) startXB(cfg measure.Config) error {
	for i, own := range s.clusters[:2] {
		dir, err := s.peersOf(own, s.clusters[1-i])
		if err != nil {
			return err
		}
		where := []string{"--peers", dir}
		if len(s.clusters) > 2 {
			where = []string{"--store", s.clusters[2].Kubeconfig()}
		}
		args := append(syncArgs(own), where...)
		c, err := measure.Launch(s.lab.Dir, "servicesync-"+own.Name, []string{"NSTOWATCH=" + namespace}, append([]string{cfg.XB}, args...)...)
		if err != nil {
			return err
		}
		s.controllers = append(s.controllers, c)
	}
	return nil
}

// peersOf is a folder with the kubeconfig of a cluster's one peer.
func (s *bed) peersOf(own, peer *cluster.Cluster) (dir string, err error) {
	dir = filepath.Join(s.lab.Dir, "peers-of-"+own.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return dir, peer.WriteKubeconfig(filepath.Join(dir, peer.Name), peer.Config.Host, peer.Config.BearerToken)
}

func syncArgs(own *cluster.Cluster) []string {
	return []string{"servicesync", "--kubeconfig", own.Kubeconfig(), "--cluster", own.Name, "--allow", "*=claim,selector"}
}

// prepare makes the Services with their slices in a: no controller of Kubernetes
// has a hand in those.
func (s *bed) prepare(ctx context.Context, services int) error {
	// Slices as they were last seen: who changes slices has a cache of them.
	cached := make([]*discoveryv1.EndpointSlice, services)
	s.changeOne = func(ctx context.Context, i, n int) error {
		// Nearly all that happens to an endpoint changes how many are ready, too.
		e := &cached[i].Endpoints[lastEndpoint]
		ready := !*e.Conditions.Ready
		e.Addresses[0], e.Conditions.Ready, e.Conditions.Serving = changed(n), &ready, &ready
		written, err := s.changer.DiscoveryV1().EndpointSlices(namespace).Update(ctx, cached[i], metav1.UpdateOptions{})
		if err != nil {
			return err
		}
		cached[i] = written
		return nil
	}
	return inParallel(ctx, perSliceWorker, services, func(ctx context.Context, i int) (err error) {
		cached[i], err = createSliced(ctx, s.changer, fmt.Sprintf("s-%d", i), endpointsEach, func(e int) string { return address(i, e) })
		return err
	})
}

// createSliced makes a Service without a selector, and a slice of it.
func createSliced(ctx context.Context, c kubernetes.Interface, name string, endpoints int, address func(int) string) (*discoveryv1.EndpointSlice, error) {
	if _, err := c.CoreV1().Services(namespace).Create(ctx, benchService(name), metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	return c.DiscoveryV1().EndpointSlices(namespace).Create(ctx, benchSlice(name, endpoints, address), metav1.CreateOptions{})
}

// benchService is a Service without a selector.
func benchService(name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}}
}

func benchSlice(name string, endpoints int, address func(int) string) *discoveryv1.EndpointSlice {
	port, portName, protocol, ready := int32(cluster.Port), "http", corev1.ProtocolTCP, true
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: "bench"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &portName, Port: &port, Protocol: &protocol}},
	}
	for e := range endpoints {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{address(e)}, Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready},
		})
	}
	return s
}

// address is that of endpoint e of Service i, which no other has.
func address(i, e int) string {
	n := i*32 + e
	return fmt.Sprintf("10.%d.%d.%d", 128+n>>16&0x3f, n>>8&0xff, n&0xff)
}

// changed is the address that change number n puts in.
func changed(n int) string { return fmt.Sprintf("11.%d.%d.%d", n>>16&0xff, n>>8&0xff, n&0xff) }

// inParallel calls f for 0 to n-1 on so many workers, and stops at an error.
func inParallel(ctx context.Context, workers, n int, f func(ctx context.Context, i int) error) error {
	_, err := measure.Drive(ctx, nil, workers, n, func(ctx context.Context, _, i int) error { return f(ctx, i) })
	return err
}
