package controlplane

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/apiserver/pkg/storage/etcd3/metrics"
	"k8s.io/apiserver/pkg/storage/storagebackend"
)

// inProcessAddress stands for an endpoint in this process. Nothing resolves it.
const inProcessAddress = "http://etcd.invalid:2379"

// String names the endpoint for people.
func (e Endpoint) String() string {
	if e.InProcess != nil {
		return "in-process etcd API"
	}
	return strings.Join(e.Addresses, ",")
}

func (e Endpoint) addresses() []string {
	if e.InProcess != nil {
		return []string{inProcessAddress}
	}
	return e.Addresses
}

// transport is the endpoint as the API server's options want it. With an endpoint in
// this process it leads nowhere, and nothing may use it.
func (e Endpoint) transport() storagebackend.TransportConfig {
	return storagebackend.TransportConfig{
		ServerList:    e.addresses(),
		KeyFile:       e.KeyFile,
		CertFile:      e.CertFile,
		TrustedCAFile: e.CAFile,
	}
}

// client opens a client. It does not wait for a connection; in process there is none.
func (e Endpoint) client() (*clientv3.Client, error) {
	cfg := clientv3.Config{
		Endpoints:            e.addresses(),
		DialTimeout:          5 * time.Second,
		DialKeepAliveTime:    30 * time.Second,
		DialKeepAliveTimeout: 10 * time.Second,
		Logger:               zap.NewNop(), // every failure comes back as an error
		DialOptions:          e.InProcess,
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

// sizeOf tells the API server's metric how large a store is. Upstream's monitors would
// connect to an address.
type sizeOf struct{ etcd *clientv3.Client }

func (s sizeOf) Monitor(ctx context.Context) (metrics.StorageMetrics, error) {
	status, err := s.etcd.Status(ctx, s.etcd.Endpoints()[0])
	if err != nil {
		return metrics.StorageMetrics{}, fmt.Errorf("ask the store for its size: %w", err)
	}
	return metrics.StorageMetrics{Size: status.DbSize}, nil
}

// Close implements metrics.Monitor; the client is closed by its owner.
func (s sizeOf) Close() error { return nil }
