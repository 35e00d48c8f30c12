// Package apiserver has the flags with which tests run a stock kube-apiserver: on an etcd
// endpoint, with its users' tokens in a file, and without nodes. It starts no process.
package apiserver

import "slices"

// Config says where a kube-apiserver finds its state and files, and where it serves. All
// fields are required.
type Config struct {
	Etcd       string // the URL of its etcd endpoint
	Host, Port string // where it serves HTTPS
	CertDir    string // where it makes itself a certificate, apiserver.crt
	Tokens     string // the file of its users' tokens
	Signer     string // the file of the key of service account tokens
	Services   string // the addresses of Services, one CIDR or two
}

// Flags returns the server's flags, and more after them.
func (c Config) Flags(more ...string) []string {
	return slices.Concat([]string{
		"--etcd-servers=" + c.Etcd,
		"--bind-address=" + c.Host,
		"--advertise-address=" + c.Host,
		"--secure-port=" + c.Port,
		"--cert-dir=" + c.CertDir,
		"--token-auth-file=" + c.Tokens,
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.Signer,
		"--service-account-signing-key-file=" + c.Signer,
		"--service-cluster-ip-range=" + c.Services,
		"--disable-admission-plugins=ServiceAccount",
		"--endpoint-reconciler-type=none",
	}, more)
}
