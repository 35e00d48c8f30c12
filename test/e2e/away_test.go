package e2e

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/xbernetes/xbernetes/test/lab/wait"
)

// A user whose server has lost its store is told within seconds which journal is
// away, and why; the log says it once, and once that it is back.
func TestStoreAway(t *testing.T) {
	store := startStore(t, nil)
	s := newServer(t, nil, "vendor", store.journal("plane"), vendorAccount.Env())
	s.up(t)
	place := "journal s3://" + bucket + "/plane does not answer since"
	const patience = "--request-timeout=20s" // it took a minute

	store.Kill()
	for _, want := range []string{"(ServiceUnavailable)", place, "refuses connections"} {
		if said := s.fails(t, patience, "get", "namespaces"); !strings.Contains(said, want) {
			t.Errorf("kubectl get, want %q: %s", want, said)
		}
	}
	// From here on the server knows: a write is refused, and not left in the air.
	if said := s.fails(t, patience, "create", "configmap", "refused"); !strings.Contains(said, "nothing was changed: "+place) {
		t.Errorf("kubectl create: %s", said)
	}
	for path, want := range map[string]string{
		"/readyz?verbose": "[-]journal failed",
		"/readyz/journal": place,
	} {
		if said := s.fails(t, patience, "get", "--raw", path); !strings.Contains(said, want) {
			t.Errorf("%s, want %q: %s", path, want, said)
		}
	}
	s.kubectl(t, "", patience, "get", "--raw", "/livez") // a restart would not help

	store.up(t)
	wait.Poll(t, startsWithin, "the server is ready again", func(ctx context.Context) error {
		if err := s.ready(ctx); err != nil {
			return err
		}
		if n := strings.Count(s.Printed(math.MaxInt), "journal answers again"); n != 1 {
			return fmt.Errorf("the log says %d times that the journal is back", n)
		}
		return nil
	})
	s.kubectl(t, "", "create", "configmap", "after")
	if said := s.fails(t, "get", "configmap", "refused"); !strings.Contains(said, "NotFound") {
		t.Errorf("the refused config map: %s", said)
	}

	log := s.Printed(math.MaxInt)
	if n := strings.Count(log, "journal does not answer"); n != 1 {
		t.Errorf("the log says %d times that the journal is away", n)
	}
	for _, foreign := range []string{"{", "etcd.invalid", "closed pipe", "no leader", vendorAccount.SecretKey} {
		if strings.Contains(log, foreign) {
			t.Errorf("the log has %q", foreign)
		}
	}
	for line := range strings.Lines(log) {
		if strings.Contains(line, "level=") && !strings.HasPrefix(line, "time=") {
			t.Errorf("the log has a line of another format: %s", line)
		}
	}
	if t.Failed() {
		t.Logf("the log:\n%s", log)
	}
}

// fails runs kubectl, which must fail, and returns what it said.
func (s *server) fails(t testing.TB, args ...string) string {
	t.Helper()
	out, err := s.tryKubectl(t, "", args...)
	if err == nil {
		t.Errorf("kubectl %s succeeds: %s", strings.Join(args, " "), out)
		return ""
	}
	return err.Error()
}
