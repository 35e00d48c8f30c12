package objectlog

import (
	"fmt"
	"os"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/xbernetes/xbernetes/internal/devstore"
	"github.com/xbernetes/xbernetes/internal/devstore/storetest"
	"github.com/xbernetes/xbernetes/internal/journal/journaltest"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/objecttest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

var (
	vendor = devstore.Account{AccessKey: "vendor", SecretKey: "vendor-secret", Owner: true}
	tenant = devstore.Account{AccessKey: "tenant", SecretKey: "tenant-secret"}
)

// gateway starts a versitygw with accounts and a policy.
func gateway(t testing.TB) *storetest.Store {
	return storetest.Start(t, devstore.Config{Dir: t.TempDir(), Bucket: testBucket, Accounts: []devstore.Account{vendor, tenant}})
}

// by is c with the credentials of account.
func by(c Config, account devstore.Account) Config {
	c.Credentials = credentials.NewStaticCredentialsProvider(account.AccessKey, account.SecretKey, "")
	return c
}

func TestMemory(t *testing.T) {
	t.Parallel()
	journaltest.Run(t, func(t *testing.T) journaltest.Fixture { return fixture(serve(t, memoryStore(t))) })
}

func TestMemoryWithFaults(t *testing.T) {
	t.Parallel()
	journaltest.Run(t, func(t *testing.T) journaltest.Fixture {
		return fixture(serve(t, objecttest.NewFaults(memoryStore(t), objecttest.S3, objecttest.Sometimes(1, 0.2, objecttest.S3))))
	})
}

func TestGatewayWithFaults(t *testing.T) {
	t.Parallel()
	store, n := gateway(t), 0
	journaltest.Run(t, func(t *testing.T) journaltest.Fixture {
		n++
		cfg := serve(t, objecttest.NewFaults(objecttest.Forward(t, store.Endpoint()), objecttest.S3, objecttest.Sometimes(uint64(n), 0.2, objecttest.S3)))
		cfg.Prefix = fmt.Sprint("faulty/", n)
		return fixture(by(cfg, vendor))
	})
}
