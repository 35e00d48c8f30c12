package controlplane

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/server/egressselector"
	"k8s.io/apiserver/pkg/storage/storagebackend"
)

// inProcessAddress stands for an endpoint that is dialed in process. Nothing
// resolves it.
const inProcessAddress = "http://etcd.invalid:2379"

// String names the endpoint for people.
func (e Endpoint) String() string {
	if e.Dial != nil {
		return "in-process etcd API"
	}
	return strings.Join(e.Addresses, ",")
}

func (e Endpoint) addresses() []string {
	if e.Dial != nil {
		return []string{inProcessAddress}
	}
	return e.Addresses
}

// transport is the endpoint as the API server's storage wants it.
func (e Endpoint) transport() storagebackend.TransportConfig {
	t := storagebackend.TransportConfig{
		ServerList:    e.addresses(),
		KeyFile:       e.KeyFile,
		CertFile:      e.CertFile,
		TrustedCAFile: e.CAFile,
	}
	if e.Dial != nil {
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return e.Dial(ctx) }
		t.EgressLookup = func(egressselector.NetworkContext) (utilnet.DialFunc, error) { return dial, nil }
	}
	return t
}

// client opens a client of this package's own. It does not wait for a connection.
func (e Endpoint) client() (*clientv3.Client, error) {
	cfg := clientv3.Config{
		Endpoints:            e.addresses(),
		DialTimeout:          5 * time.Second,
		DialKeepAliveTime:    30 * time.Second,
		DialKeepAliveTimeout: 10 * time.Second,
		Logger:               zap.NewNop(), // every failure comes back as an error
	}
	if e.Dial != nil {
		cfg.DialOptions = []grpc.DialOption{
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return e.Dial(ctx) }),
		}
	}
	if e.CAFile != "" || e.CertFile != "" || e.KeyFile != "" {
		info := transport.TLSInfo{CertFile: e.CertFile, KeyFile: e.KeyFile, TrustedCAFile: e.CAFile}
		tlsConfig, err := info.ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("load etcd client certificates: %w", err)
		}
		cfg.TLS = tlsConfig
	}
	c, err := clientv3.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("open etcd client for %s: %w", e, err)
	}
	return c, nil
}
