package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/xbernetes/xbernetes/test/lab/network"
	"github.com/xbernetes/xbernetes/test/lab/wait"
)

// Port is where pods serve HTTP.
const Port = 8080

// A Pod is a Pod object and, in a cluster with a node, an HTTP server that
// answers with the pod's name from a namespace of its own.
type Pod struct {
	Namespace, Name, IP string

	cluster *Cluster
	net     *network.Namespace
	die     func() // ends what serves; nil if nothing does
}

// AddPod starts a pod that is ready. Without a node it is an object only.
func (c *Cluster) AddPod(ctx context.Context, namespace, name string, labels map[string]string) (*Pod, error) {
	p, err := c.newPod(namespace, name)
	if err != nil {
		return nil, err
	}
	if p.net != nil {
		lis, err := p.net.Listen(fmt.Sprintf(":%d", Port))
		if err != nil {
			return nil, fmt.Errorf("listen in pod %s: %w", name, err)
		}
		server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, name)
		})}
		go func() { _ = server.Serve(lis) }() // until it is closed
		p.die = func() { _ = server.Close() }
		c.lab.onClose(p.die)
	}
	return p, p.create(ctx, labels)
}

// newPod gives the pod an address, and the namespace that has it.
func (c *Cluster) newPod(namespace, name string) (*Pod, error) {
	k := c.pods
	c.pods++
	p := &Pod{Namespace: namespace, Name: name, cluster: c}
	if c.Node == nil {
		p.IP = fmt.Sprintf("10."+octet+".%d.%d", 100+c.number, k%250+2)
		return p, nil
	}
	var err error
	p.net, p.IP, err = c.lab.newPod(c.Node, c.number, k, c.Name+"-"+name)
	if err != nil {
		return nil, fmt.Errorf("connect pod %s: %w", name, err)
	}
	return p, nil
}

// create writes the object, as a kubelet would once the pod runs.
func (p *Pod) create(ctx context.Context, labels map[string]string) error {
	_, err := p.cluster.Client.CoreV1().Pods(p.Namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, Labels: labels},
		Spec: corev1.PodSpec{
			NodeName:   p.cluster.nodeName(),
			Containers: []corev1.Container{{Name: "server", Image: "example.com/server", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: Port}}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create pod %s: %w", p.Name, err)
	}
	return p.SetReady(ctx, true)
}

// SetReady writes whether the pod's readiness probe succeeds.
func (p *Pod) SetReady(ctx context.Context, ready bool) error {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	patch, err := json.Marshal(map[string]any{"status": corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: p.IP, PodIPs: []corev1.PodIP{{IP: p.IP}}, HostIP: nodeIP(p.cluster.number),
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}},
	}})
	if err != nil {
		return err
	}
	_, err = p.cluster.Client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("set readiness of pod %s: %w", p.Name, err)
	}
	return nil
}

// resolver asks a DNS server from inside the pod.
func (p *Pod) resolver(server string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, proto, _ string) (net.Conn, error) {
		return p.net.DialContext(ctx, proto, server)
	}}
}

// Remove deletes the pod as a kubelet does: it is terminating, and serves on,
// for as long as drain takes; then it is gone.
func (p *Pod) Remove(ctx context.Context, drain func(context.Context) error) error {
	pods := p.cluster.Client.CoreV1().Pods(p.Namespace)
	if err := pods.Delete(ctx, p.Name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete pod %s: %w", p.Name, err)
	}
	if err := drain(ctx); err != nil {
		return fmt.Errorf("drain pod %s: %w", p.Name, err)
	}
	p.Die()
	err := pods.Delete(ctx, p.Name, *metav1.NewDeleteOptions(0))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete pod %s at last: %w", p.Name, err)
	}
	return nil
}

// Die ends the pod's process at once; the object knows nothing of it.
func (p *Pod) Die() {
	if p.die != nil {
		p.die()
	}
}

// Drain is a drain that ends when no node sends new calls to the pod, and those
// on their way have had a second. It waits for whoever is slow to hear of the
// pod's end: how fast that is, no test asserts.
func (p *Pod) Drain(ctx context.Context) error {
	for _, c := range p.cluster.lab.clusters {
		if c.Node == nil {
			continue
		}
		if err := wait.Until(ctx, c.Name+" sends nothing to "+p.Name, func(ctx context.Context) error {
			sends, err := c.SendsTo(ctx, p)
			if sends {
				err = fmt.Errorf("a rule of kube-proxy names %s", p.IP)
			}
			return err
		}); err != nil {
			return err
		}
	}
	// kube-proxy forgets the UDP flows to pods that serve no more. The next who has
	// the port of an old flow would be sent the same way.
	if err := p.SetReady(ctx, false); err != nil {
		return err
	}
	return Grace(time.Second)(ctx)
}

// Grace is a drain that takes a time: what a pod's terminationGracePeriod and
// preStop hook come to.
func Grace(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d):
			return nil
		}
	}
}
