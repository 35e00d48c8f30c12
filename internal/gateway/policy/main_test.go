package policy

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// The authorizer's cache, and klog, start these for the life of a process.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
		goleak.IgnoreTopFunction("k8s.io/apimachinery/pkg/util/cache.(*expiringCache).Run"),
	)
}
