package source

import (
	"errors"
	"fmt"
	"log/slog"

	"k8s.io/client-go/tools/clientcmd"
)

// Place says where the servers are named: in a file, or in a Kubernetes API.
type Place struct {
	File        string // of RemoteAPIServers
	Kubeconfig  string // of the API; in-cluster for that of the pod's service account
	Secrets     string // the namespace of that API whose Secrets servers may name
	WriteStatus bool   // the gateway's findings are written to each object's status
}

// Open makes the source of the place. Its errors name the flags of xb gateway.
func (p Place) Open(log *slog.Logger) (Source, error) {
	switch {
	case p.File != "" && p.Kubeconfig != "":
		return nil, errors.New("--servers and --kubeconfig both name servers; give one")
	case p.File != "":
		return NewFile(p.File, log)
	case p.Kubeconfig == "":
		return nil, errors.New("name the servers: --servers FILE, or --kubeconfig FILE of an API that has RemoteAPIServers")
	}
	path := p.Kubeconfig
	if path == "in-cluster" {
		path = ""
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("read --kubeconfig %s: %w", p.Kubeconfig, err)
	}
	return NewAPI(config, p.Secrets, p.WriteStatus, log)
}
