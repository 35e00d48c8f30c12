package policy

import (
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard()) // requests that are no requests are what is tested
	// The authorizer's cache, and klog, start these for the life of a process.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
		goleak.IgnoreTopFunction("k8s.io/apimachinery/pkg/util/cache.(*expiringCache).Run"),
	)
}
