package facade

import (
	"bytes"
	"context"
	"encoding/pem"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/api/region/client"
	"github.com/xbernetes/xbernetes/internal/region/regiontest"
)

// world is three real API servers that are regions, a facade of them, and kubectl.
type world struct {
	*testing.T
	kubectl string
	servers map[string]*regiontest.Server
	issuer  *regiontest.Issuer
	url, ca string // of the facade
}

// newWorld starts servers that take the same tokens. The user "operator" may do everything
// with names in all regions, "reader" may read them, and "local" may do everything in eu alone.
func newWorld(t *testing.T) *world {
	binary := regiontest.Binary(t)
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("there is no kubectl")
		}
		t.Skip("there is no kubectl")
	}
	w := &world{T: t, kubectl: kubectl, servers: map[string]*regiontest.Server{}, issuer: regiontest.NewIssuer(t)}
	config := client.Config{Register: "eu", Regions: map[string]*rest.Config{}}
	for _, name := range []string{"ap", "eu", "us"} {
		w.servers[name] = regiontest.Start(t, binary, w.issuer.Flags()...)
	}
	for name, s := range w.servers {
		config.Regions[name] = s.Ready(t)
		w.grant(config.Regions[name], "operator", "*")
		w.grant(config.Regions[name], "reader", "get", "list")
	}
	w.grant(config.Regions["eu"], "local", "*")
	regions, err := client.Open(config, nil)
	w.must(err)
	for _, name := range []string{"eu", "us", "ap"} {
		w.must(regions.Join(t.Context(), name))
	}
	w.serve(config)
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// grant lets a user do something with all that regions store.
func (w *world) grant(config *rest.Config, user string, verbs ...string) {
	w.Helper()
	api, err := kubernetes.NewForConfig(config)
	w.must(err)
	_, err = api.RbacV1().ClusterRoles().Create(w.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"region.xbernetes.io"}, Resources: []string{"*"}, Verbs: verbs}},
	}, metav1.CreateOptions{})
	w.must(err)
	_, err = api.RbacV1().ClusterRoleBindings().Create(w.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	w.must(err)
}

func (w *world) serve(config client.Config) {
	w.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	w.must(err)
	made, err := Serving{DataDir: w.TempDir()}.Open(listener.Addr(), slog.New(slog.DiscardHandler))
	w.must(err)
	w.Cleanup(made.Close)
	server, err := New(Config{Regions: config, Listener: listener, Cert: made.Provider, Log: slog.New(slog.DiscardHandler)})
	w.must(err)
	cert, _ := made.Provider.CurrentCertKeyContent()
	block, _ := pem.Decode(cert)
	w.ca = filepath.Join(w.TempDir(), "ca.crt")
	w.must(os.WriteFile(w.ca, pem.EncodeToMemory(block), 0o600))
	w.url = "https://" + listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	w.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Errorf("the facade ended with %v", err)
		}
	})
}

// command is kubectl as a user at a path of the facade.
func (w *world) command(user, path, input string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(w.Context(), w.kubectl, append([]string{"--server", w.url + path, "--certificate-authority", w.ca,
		"--token", w.issuer.Token(w.T, user), "--cache-dir", w.TempDir()}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+os.DevNull)
	cmd.Stdin = strings.NewReader(input)
	return cmd
}

// says checks that kubectl succeeds, or fails, and prints each of the texts.
func (w *world) says(ok bool, user, path, input string, args []string, texts ...string) {
	w.Helper()
	out, err := w.command(user, path, input, args...).CombinedOutput()
	if (err == nil) != ok {
		w.Errorf("%s: kubectl %s: %v\n%s", user, strings.Join(args, " "), err, out)
	}
	for _, text := range texts {
		if !bytes.Contains(out, []byte(text)) {
			w.Errorf("%s: kubectl %s prints\n%swithout %q", user, strings.Join(args, " "), out, text)
		}
	}
}

func words(s string) []string { return strings.Fields(s) }

const tokyo = `{"apiVersion": "region.xbernetes.io/v1alpha1", "kind": "ServiceCluster", "metadata": {"name": "tokyo"}, "spec": {"region": "ap"}}`

func account(name, region string) string {
	return `{"apiVersion": "region.xbernetes.io/v1alpha1", "kind": "Account", "metadata": {"name": "` + name + `"}, "spec": {"roles": ["Tenant"], "region": "` + region + `"}}`
}

const assignment = `{"apiVersion": "region.xbernetes.io/v1alpha1", "kind": "ServiceClusterAssignment", "metadata": {"name": "tokyo.team-a"},
	"spec": {"serviceCluster": "tokyo", "account": "team-a", "region": "us"}}`

// TestKubectl: kubectl works with names over three real regions as if there were one place.
func TestKubectl(t *testing.T) {
	w := newWorld(t)
	w.says(true, "operator", "", "", words("api-resources --api-group region.xbernetes.io"), "accounts", "serviceclusters", "serviceclusterassignments")
	w.says(true, "operator", "", "", words("explain account.spec.roles"), "Roles say what its subjects may do")
	events := w.watch("reader")

	w.says(true, "operator", "", account("team-a", "eu"), words("create -f - --dry-run=server"), "team-a created (server dry run)")
	w.says(true, "operator", "", account("team-a", "eu"), words("create -f -"), "team-a created")
	w.says(true, "operator", "", tokyo, words("apply -f -"), "tokyo created")
	w.says(true, "operator", "", assignment, words("create -f -"), "tokyo.team-a created")
	events.next(w, "ADDED", "team-a")

	w.says(true, "reader", "", "", words("get accounts"), "NAME", "ROLES", "REGION", "team-a", "Tenant", "eu", "Ready")
	w.says(true, "reader", "", "", words("get serviceclusterassignments,serviceclusters -o yaml"), "region: us", "region: ap", "operation:", "uid:")
	w.says(true, "reader", "", "", words("get account team-a -o jsonpath={.spec.region}"), "eu")
	w.says(true, "reader", "", "", words("get accounts --field-selector metadata.name=none"), "No resources found")
	w.says(true, "reader", "", "", words("describe account team-a"), "team-a")

	w.says(false, "operator", "", account("team-a", "us"), words("create -f -"), "AlreadyExists", "its home is region eu")
	w.says(false, "operator", "", "", words("delete account team-a"), "Conflict", "tokyo/team-a")
	w.says(false, "operator", "", account("team-b", "mars"), words("create -f -"), "mars")
	w.says(false, "operator", "", account("Team", "eu"), words("create -f -"), "cannot be a name")
	w.says(false, "operator", "", account("team-b", ""), words("create -f -"), "spec.region must name")
	w.says(false, "operator", "", strings.Replace(account("team-b", "eu"), "Tenant", "King", 1), words("create -f -"), "King")
	w.says(false, "operator", "", strings.Replace(account("team-b", "eu"), "roles", "rolls", 1), words("create -f -"), "unknown field")
	w.says(false, "operator", "", strings.Replace(assignment, "tokyo.team-a", "other", 1), words("create -f -"), "tokyo.team-a")
	w.says(false, "operator", "", "", words("get account none"), "NotFound")
	w.says(false, "operator", "", "", words("label account team-a a=b"), "")

	w.rights()
	w.ways()

	w.says(true, "operator", "", "", words("delete serviceclusterassignment tokyo.team-a"), "deleted")
	w.says(true, "operator", "", "", words("delete account team-a"), "deleted")
	events.next(w, "DELETED", "team-a")
	w.away()
}

// rights: each region decides for itself what a caller may do there.
func (w *world) rights() {
	w.says(false, "reader", "", account("team-b", "eu"), words("create -f -"), "Forbidden", `"reader" cannot create`)
	w.says(false, "nobody", "", "", words("get accounts"), "Forbidden", `"nobody" cannot`)
	w.says(false, "local", "", account("team-b", "eu"), words("create -f -"), "Forbidden", `"local" cannot`)
	w.says(false, "operator", "", "", words("delete account team-a --as nobody"), "as the caller alone")
	w.says(false, "operator", "/regions/eu", "", words("get claims.region.xbernetes.io --as nobody"), "Forbidden")
	w.says(true, "operator", "", "", words("get accounts"), "team-a")
}

// ways: paths of the facade lead to the regions themselves.
func (w *world) ways() {
	w.says(true, "operator", "/regions/us", "", words("get claims.region.xbernetes.io"), "team-a")
	w.says(true, "operator", "/serviceclusters/tokyo", "", words("get memberships.region.xbernetes.io"), "members")
	w.says(false, "nobody", "/serviceclusters/tokyo", "", words("get memberships.region.xbernetes.io"), "Forbidden")
	w.says(false, "operator", "/serviceclusters/osaka", "", words("get memberships.region.xbernetes.io"), "")
}

// away: the names can be read while a region is away; what needs it says so, and goes on with
// the operation's ID.
func (w *world) away() {
	w.servers["ap"].Kill()
	w.says(true, "reader", "", "", words("get serviceclusters"), "tokyo")
	w.says(false, "operator", "", "", words("get --raw /regions/ap/version"), `"ap"`)
	w.says(true, "operator", "/regions/us", "", words("get claims.region.xbernetes.io"), "tokyo")
	out, err := w.command("operator", "", account("team-z", "eu"), words("create -f - --request-timeout 4s")...).CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("the outcome is open")) || !bytes.Contains(out, []byte("in ap")) {
		w.Errorf("a create that a region is away for: %v\n%s", err, out)
	}
	w.servers["ap"].Run(w.T)
	w.servers["ap"].Ready(w.T)
	_, rest, _ := strings.Cut(string(out), "operation ")
	id, _, _ := strings.Cut(rest, ":")
	again := strings.Replace(account("team-z", "eu"), `"metadata": {`, `"metadata": {"annotations": {"region.xbernetes.io/operation": "`+id+`"}, `, 1)
	for range 2 {
		w.says(true, "operator", "", again, words("create -f -"), "team-z created")
	}
}

// events are what a kubectl that watches prints.
type events struct{ lines chan string }

func (w *world) watch(user string) events {
	cmd := w.command(user, "", "", words("get accounts --watch --output-watch-events -o name")...)
	cmd.Args = append(words(cmd.Args[0]), append(cmd.Args[1:len(cmd.Args)-2], "-o", "jsonpath={.type} {.object.metadata.name}{'\\n'}")...)
	out, err := cmd.StdoutPipe()
	w.must(err)
	cmd.Stderr = io.Discard
	w.must(cmd.Start())
	e := events{make(chan string, 100)}
	go func() {
		defer close(e.lines)
		text := ""
		buffer := make([]byte, 4096)
		for {
			n, err := out.Read(buffer)
			text += string(buffer[:n])
			for {
				line, rest, whole := strings.Cut(text, "\n")
				if !whole {
					break
				}
				e.lines <- line
				text = rest
			}
			if err != nil {
				return
			}
		}
	}()
	w.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return e
}

// next waits for an event.
func (e events) next(w *world, texts ...string) {
	w.Helper()
	late := time.After(patience)
	for {
		select {
		case line, ok := <-e.lines:
			if !ok {
				w.Fatalf("the watch ended before %v", texts)
			}
			found := true
			for _, text := range texts {
				found = found && strings.Contains(line, text)
			}
			if found {
				return
			}
		case <-late:
			w.Fatalf("the watch does not say %v", texts)
		}
	}
}
