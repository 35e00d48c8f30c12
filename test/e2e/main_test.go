// Package e2e tests xb from outside: it runs the binary as a user would, and
// knows nothing of what is inside. It never imports a package of the product.
//
// The binary is built once, or taken from the environment variable XB_BIN.
// What a test needs and this machine has not (root, network namespaces) skips
// it with a word, and is an error where CI=true. Programs are built from their
// public modules.
package e2e

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/xbernetes/xbernetes/test/lab/program"
)

func TestMain(m *testing.M) {
	var err error
	if xbBinary, err = program.Path(context.Background(), "xb"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// xbBinary is the binary under test, an absolute path.
var xbBinary string

// named numbers names that must differ.
var named atomic.Int64
