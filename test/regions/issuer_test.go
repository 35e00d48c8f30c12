package regions

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/xbernetes/xbernetes/test/lab/process"
	"github.com/xbernetes/xbernetes/test/lab/program"
)

// issuer issues tokens that all regions take: the example's, which stands in for any provider of
// OpenID Connect.
type issuer struct {
	program, dir string
	config       string // the AuthenticationConfiguration of the servers
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{program: filepath.Join(program.Repository(), "examples", "regions", "issuer"), dir: filepath.Join(t.TempDir(), "issuer")}
	i.config = filepath.Join(i.dir, "authentication.yaml")
	if _, err := process.Run(t, nil, nil, "", i.program, "serve", i.dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		text, err := os.ReadFile(filepath.Join(i.dir, "pid"))
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	})
	return i
}

// token is a user's, and can be used for an hour.
func (i *issuer) token(t *testing.T, user string) string {
	t.Helper()
	token, err := process.Run(t, nil, nil, "", i.program, "token", i.dir, user)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(token)
}
