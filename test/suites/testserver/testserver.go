// Package testserver takes the place of k8s.io/apiserver's package of the same
// name when its suites run here: the same functions, with this project's store
// where that one embeds etcd. The runner lays this file over the other.
package testserver

import (
	"crypto/tls"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"

	"github.com/xbernetes/xbernetes/test/suites/store"
)

// NewTestConfig returns a configuration that a test may change: of it,
// ClientTLSInfo and WatchProgressNotifyInterval are honoured, and the rest is
// etcd's own affair (ports, directories, quotas).
func NewTestConfig(testing.TB) *embed.Config { return embed.NewConfig() }

// RunEtcd starts a store as cfg says (nil for NewTestConfig's), and returns a
// client of it. Both are gone when the test is.
func RunEtcd(t testing.TB, cfg *embed.Config) *kubernetes.Client {
	t.Helper()
	if cfg == nil {
		cfg = NewTestConfig(t)
	}
	endpoint := store.Start(t, store.Options{
		TLS:              serverTLS(t, cfg),
		ProgressInterval: cfg.WatchProgressNotifyInterval,
	})
	clientTLS, err := cfg.ClientTLSInfo.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.New(clientv3.Config{
		TLS:         clientTLS,
		Endpoints:   []string{endpoint},
		DialTimeout: 10 * time.Second,
		Logger:      zaptest.NewLogger(t, zaptest.Level(zapcore.ErrorLevel)).Named("etcd-client"),
	})
	if err != nil {
		t.Fatal(err)
	}
	recorder := storagetesting.NewKubernetesRecorder(client.Kubernetes)
	client.KV = storagetesting.NewKVRecorder(client.KV, recorder)
	client.Kubernetes = recorder
	return client
}

// serverTLS is nil where cfg asks for plain text.
func serverTLS(t testing.TB, cfg *embed.Config) *tls.Config {
	if cfg.ClientTLSInfo.Empty() {
		return nil
	}
	server, err := cfg.ClientTLSInfo.ServerConfig()
	if err != nil {
		t.Fatal(err)
	}
	return server
}
