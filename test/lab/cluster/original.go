package cluster

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// Original is how to run a build of the k8s-endpoints-sync-controller as if in a
// pod of the cluster: the folders that it reads and writes, which are fixed, are
// mounted for it alone. peers is a folder of kubeconfigs.
func (c *Cluster) Original(program, peers string) (argv, env []string, err error) {
	ca, err := os.ReadFile(c.CAFile())
	if err != nil {
		return nil, nil, err
	}
	account := c.path("account")
	if err := os.MkdirAll(account, 0o700); err != nil {
		return nil, nil, err
	}
	for name, data := range map[string]string{"token": c.Config.BearerToken, "namespace": "kube-system", "ca.crt": string(ca)} {
		if err := os.WriteFile(filepath.Join(account, name), []byte(data), 0o600); err != nil {
			return nil, nil, err
		}
	}
	host, port, err := net.SplitHostPort(c.Config.Host[len("https://"):])
	if err != nil {
		return nil, nil, err
	}
	mount := fmt.Sprintf(`set -e
mount -t tmpfs tmpfs /mnt && mkdir /mnt/peers && cp %s/* /mnt/peers/
mount -t tmpfs tmpfs /run && mkdir -p /run/secrets/kubernetes.io/serviceaccount && cp %s/* /run/secrets/kubernetes.io/serviceaccount/
mount -t tmpfs tmpfs /etc && mkdir /etc/kubeconfigs && cp /mnt/peers/* /etc/kubeconfigs/
mount -t tmpfs tmpfs /var/log
exec %s`, peers, account, program)
	return []string{"unshare", "-m", "sh", "-c", mount}, []string{"KUBERNETES_SERVICE_HOST=" + host, "KUBERNETES_SERVICE_PORT=" + port}, nil
}
