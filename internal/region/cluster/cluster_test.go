package cluster

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/xbernetes/xbernetes/internal/region/namespace"
)

func written(server, user string) []byte {
	return fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: a, clusters: [{name: a, cluster: {server: %q}}],
contexts: [{name: a, context: {cluster: a, user: a}}], users: [{name: a, user: %s}]}`, server, user)
}

// TestHostileKubeconfigs: what is no plain way to a server is refused, and no secret is quoted.
func TestHostileKubeconfigs(t *testing.T) {
	for name, file := range map[string][]byte{
		"nothing":   nil,
		"no config": []byte("no kubeconfig"),
		"a command": written("https://a", "{exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/true, interactiveMode: Never}}"),
		"a file":    written("https://a", "{tokenFile: /etc/passwd}"),
		"too large": []byte(strings.Repeat(" ", maxFile+1)),
	} {
		if _, err := Open(file); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if _, err := Open(written("https://a", "{token: hush}")); err != nil {
		t.Error(err)
	}
}

// TestHostileAnswers: a service cluster cannot make us hold more than one bounded answer, and
// what it says ends up on one short line.
func TestHostileAnswers(t *testing.T) {
	var read atomic.Bool // whether all of an answer was read that does not end soon
	for name, test := range map[string]struct {
		answer func(http.ResponseWriter)
		want   Problem // but for the message
	}{
		"no end": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			for range 16 * maxAnswer / 1024 {
				if _, err := fmt.Fprintf(w, "%1024s", ""); err != nil {
					return
				}
			}
			read.Store(true)
		}, Problem{Reachable: false, Reason: "Unreachable"}},
		"words": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"message":"first\nsecond %s\xff"}`, strings.Repeat("x", 1000))
		}, Problem{Reachable: true, Reason: "Unwell"}},
		"a refusal":        {func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) }, Problem{Reachable: true, Reason: "Unauthorized"}},
		"another protocol": {func(w http.ResponseWriter) { fmt.Fprint(w, "<html>") }, Problem{Reachable: false, Reason: "Unreachable"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { test.answer(w) }))
			defer server.Close()
			c, err := Open(written(server.URL, "{token: hush}"))
			if err != nil {
				t.Fatal(err)
			}
			got := c.Probe(t.Context())
			if got == nil || got.Reachable != test.want.Reachable || got.Reason != test.want.Reason {
				t.Fatalf("it is %+v, want %+v", got, test.want)
			}
			if len(got.Message) > 400 || strings.Contains(got.Message, "\n") || !utf8.ValidString(got.Message) || strings.Contains(got.Message, "hush") {
				t.Errorf("the message is %q", got.Message)
			}
			if _, err := c.Ensure(t.Context(), namespace.Wanted{Name: "a", Account: "a", Operation: "0-a"}); err == nil {
				t.Error("a namespace was made")
			}
		})
	}
	if read.Load() {
		t.Errorf("all of an answer was read that is 16 times too large")
	}
}
