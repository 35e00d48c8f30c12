package main

import (
	"bytes"
	"encoding/json"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/xbernetes/xbernetes/internal/usage"
)

// says runs xb to its end and returns what it prints, or its error.
func says(t *testing.T, args ...string) string {
	t.Helper()
	cmd := newCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		return err.Error()
	}
	return out.String()
}

func TestTypos(t *testing.T) {
	for args, want := range map[string]string{
		"serve":                 `unknown command "serve" for xb; did you mean server?`,
		"gatway":                `unknown command "gatway" for xb; did you mean gateway?`,
		"frobnicate":            `unknown command "frobnicate" for xb; see xb --help`,
		"journal dmup":          `unknown command "dmup" for xb journal; did you mean dump?`,
		"gateway validat":       `unknown command "validat" for xb gateway; did you mean validate?`,
		"servicesync statsu":    `unknown command "statsu" for xb servicesync; did you mean status?`,
		"dev strat":             `unknown command "strat" for xb dev; did you mean start?`,
		"regoin list":           `unknown command "regoin" for xb; did you mean region?`,
		"account create team-a": "--region must name the region to ask in",
		"account list --region eu --regions /nonexistent":                      "read the regions: open /nonexistent",
		"region kubeconfig eu --account team-a":                                "name one of a region, --account and --service-cluster",
		"region list -o yaml":                                                  "want text or json",
		"server --lisen 127.0.0.1:1":                                           "unknown flag: --lisen; did you mean --listen?",
		"server --data_dir x":                                                  "unknown flag: --data_dir; did you mean --data-dir?",
		"fsck --jurnal x":                                                      "unknown flag: --jurnal; did you mean --journal?",
		"server --frobnicate":                                                  "unknown flag: --frobnicate; see xb server --help",
		"server --listen http://[::1]:99/":                                     `--listen is a URL, "http://[::1]:99/"; write --listen [::1]:99`,
		"server --listen localhost":                                            `--listen is "localhost"; want HOST:PORT, such as 127.0.0.1:6443`,
		"gateway --servers x --listen https://127.0.0.1:7443":                  `--listen is a URL, "https://127.0.0.1:7443"; write --listen 127.0.0.1:7443`,
		"servicesync --cluster a --listen http://:9790":                        `--listen is a URL, "http://:9790"; write --listen :9790`,
		"etcd --journal mem: --listen https://127.0.0.1:2379":                  "https needs a certificate",
		"etcd --journal mem: --listen http://0.0.0.0:2379":                     "open to whoever reaches it",
		"server --data-dir /nonexistent/x --etcd-listen http://192.0.2.1:2379": "open to whoever reaches it",
	} {
		if got := says(t, strings.Fields(args)...); !strings.Contains(got, want) || strings.Contains(got, "\n") {
			t.Errorf("xb %s says %q; want one line with %q", args, got, want)
		}
	}
}

func TestVersion(t *testing.T) {
	var v struct{ XB, Kubernetes, Etcd, Go, Platform string }
	if err := json.Unmarshal([]byte(says(t, "version", "-o", "json")), &v); err != nil || v.XB != version || v.Go == "" || v.Kubernetes == "" || v.Etcd == "" || !strings.Contains(v.Platform, "/") {
		t.Errorf("version -o json: %+v, %v", v, err)
	}
	if got := says(t, "--version"); got != says(t, "version") || !strings.HasPrefix(got, "xb "+version) {
		t.Errorf("--version prints %q", got)
	}
	if got := says(t, "version", "-o", "yaml"); !strings.Contains(got, "want text or json") {
		t.Errorf("version -o yaml: %q", got)
	}
}

func TestHelpFits(t *testing.T) {
	for _, c := range append(usage.Below(newCommand()), newCommand()) {
		if c.Hidden || c.Name() == "help" || strings.Contains(c.CommandPath(), "completion") {
			continue
		}
		args := append(strings.Fields(c.CommandPath())[1:], "--help")
		help := says(t, args...)
		if !strings.Contains(help, "Usage:") {
			t.Fatalf("%v prints %q", args, help)
		}
		for line := range strings.Lines(help) {
			if n := len([]rune(strings.TrimRight(line, "\n"))); n > usage.MaxWidth {
				t.Errorf("%v prints a line of %d columns: %s", args, n, line)
			}
		}
	}
}

// TestEnumerationsComplete: the values of every flag that takes one of a few
// are completed. A flag is known by its name, or by a usage like "a, b or c".
func TestEnumerationsComplete(t *testing.T) {
	known := map[string][]string{
		"reads": {"linearizable", "session"}, "trim": {"auto", "always", "never"}, "output": {"json"},
		"log-level": {"debug", "info", "warn", "error"}, "log-format": {"text", "json"},
		"context": nil, // "name of …, or …" is no enumeration
	}
	enumeration := regexp.MustCompile(`(?:^|: )((?:\w+, )*\w+) or (\w+)$`)
	found := 0
	for _, c := range usage.Below(newCommand()) {
		if strings.Contains(c.CommandPath(), "completion") || c.Name() == "help" {
			continue
		}
		c.InheritedFlags() // merges them into Flags
		c.Flags().VisitAll(func(f *pflag.Flag) {
			values, ok := known[f.Name]
			if m := enumeration.FindStringSubmatch(f.Usage); m != nil && !ok && f.Value.Type() == "string" {
				values = append(strings.Split(m[1], ", "), m[2])
			}
			if len(values) == 0 {
				return
			}
			found++
			got := strings.Split(says(t, append(append([]string{"__complete"}, strings.Fields(c.CommandPath())[1:]...), "--"+f.Name, "")...), "\n")
			for _, want := range values {
				if !slices.Contains(got, want) {
					t.Errorf("%s --%s does not complete %s: %q", c.CommandPath(), f.Name, want, got)
				}
			}
		})
	}
	t.Logf("%d flags", found)
	if found < 20 {
		t.Errorf("only %d flags with enumerations were found", found)
	}
}
