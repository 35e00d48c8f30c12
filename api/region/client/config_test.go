package client

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/region/stored"
)

const kubeconfig = `{apiVersion: v1, kind: Config, current-context: a,
clusters: [{name: a, cluster: {server: "https://127.0.0.1:1", certificate-authority: ca.pem}}],
contexts: [{name: a, context: {cluster: a, user: a}}], users: [{name: a, user: {token: t}}]}`

const ca = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"

// TestLoad: a file of regions is read whole or refused, with a word on why.
func TestLoad(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{"eu": kubeconfig, "ca.pem": ca, "bad": "no kubeconfig"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct{ file, want string }{
		"a region":                   {"{register: eu, regions: {eu: eu}}", ""},
		"a central store":            {"{central: eu, regions: {eu: eu}}", ""},
		"nothing":                    {"", "no region is named"},
		"no register":                {"{regions: {eu: eu}}", "register must name the region"},
		"a register elsewhere":       {"{register: us, regions: {eu: eu}}", "which is not among the regions"},
		"a register and a centre":    {"{register: eu, central: eu, regions: {eu: eu}}", "register must not be set"},
		"a field that is not known":  {"{registrar: eu, regions: {eu: eu}}", "registrar"},
		"a name that is none":        {"{register: EU, regions: {EU: eu}}", "cannot be a region's name"},
		"a kubeconfig that is none":  {"{register: eu, regions: {eu: bad}}", "region eu of"},
		"a kubeconfig that is away":  {"{register: eu, regions: {eu: none}}", "region eu of"},
		"a centre that is no config": {"{central: bad, regions: {eu: eu}}", "the central store of"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(folder, "regions.yaml")
			if err := os.WriteFile(path, []byte(test.file), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Load(path)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("the error is %v, want %q", err, test.want)
			}
		})
	}
}

// TestKubeconfig: what a kubeconfig names stands in what is printed of it.
func TestKubeconfig(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{"eu": kubeconfig, "ca.pem": ca, "regions.yaml": "{register: eu, regions: {eu: eu}}"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Load(filepath.Join(folder, "regions.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.Kubeconfig("eu")
	if err != nil || !strings.Contains(string(text), "certificate-authority-data: ") {
		t.Errorf("the kubeconfig is %s, %v", text, err)
	}
	if _, err := c.Kubeconfig("us"); err == nil {
		t.Error("a region that is not configured has a kubeconfig")
	}
}

// TestThrough: the way through a facade has the facade's address and the region's token, and
// never a certificate.
func TestThrough(t *testing.T) {
	folder := t.TempDir()
	const front = `{apiVersion: v1, kind: Config, current-context: r, clusters: [{name: r, cluster: {server: "https://127.0.0.1:8443"}}],
contexts: [{name: r, context: {cluster: r, user: r}}], users: [{name: r, user: {}}]}`
	for name, text := range map[string]string{
		"eu": kubeconfig, "us": strings.Replace(kubeconfig, "token: t", "client-certificate: ca.pem, client-key: ca.pem", 1), "ca.pem": ca,
		"facade": front, "regions.yaml": "{register: eu, regions: {eu: eu, us: us}}",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Load(filepath.Join(folder, "regions.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.Through(filepath.Join(folder, "facade"), "/regions/us", "")
	if err != nil || !strings.Contains(string(text), "server: https://127.0.0.1:8443/regions/us\n") || !strings.Contains(string(text), "token: t\n") {
		t.Errorf("the kubeconfig is %s, %v", text, err)
	}
	if text, err := c.Through(filepath.Join(folder, "facade"), "/regions/us", "us"); err == nil {
		t.Errorf("a certificate is to be passed on: %s", text)
	}
	if _, err := c.Through(filepath.Join(folder, "none"), "", ""); err == nil {
		t.Error("a facade that is not there has a kubeconfig")
	}
}

// TestAnonymous: of what has credentials, only the address and the authority are left.
func TestAnonymous(t *testing.T) {
	with := &rest.Config{Host: "https://eu", BearerToken: "t", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("ca"), CertData: []byte("c"), KeyData: []byte("k")}}
	c := Config{Register: "eu", Regions: map[string]*rest.Config{"eu": with, "us": {Host: "https://us"}}, Central: with, files: map[string]string{"eu": "eu"}}
	none, had := c.Anonymous()
	if got := strings.Join(had, ","); got != "eu,the central store" {
		t.Errorf("%s had credentials", got)
	}
	for name, r := range map[string]*rest.Config{"eu": none.Regions["eu"], "the centre": none.Central} {
		if hasCredentials(r) || r.Host != "https://eu" || string(r.CAData) != "ca" {
			t.Errorf("of %s is left %v", name, r)
		}
	}
	if _, err := none.Kubeconfig("eu"); err == nil {
		t.Error("the kubeconfig, with its credentials, is still to be had")
	}
}

// TestNames: names are those that a namespace can have.
func TestNames(t *testing.T) {
	for _, test := range []struct {
		kind Kind
		name string
		ok   bool
	}{
		{Account, "team-a", true},
		{Account, "Team", false},
		{Account, "a/b", false},
		{Account, "", false},
		{Assignment, "tokyo/team-a", true},
		{Assignment, "tokyo", false},
		{Assignment, "tokyo/", false},
		{Assignment, "a/b/c", false},
	} {
		if err := checkName(test.kind, test.name); (err == nil) != test.ok {
			t.Errorf("%s %q: %v", test.kind, test.name, err)
		}
	}
}

// TestSpecs: a name has a spec of its own kind or none, and a spec that cannot be read hides
// no name.
func TestSpecs(t *testing.T) {
	tenant := Spec{Account: &v1alpha1.AccountSpec{Roles: []v1alpha1.AccountRole{v1alpha1.Tenant}}}
	text, err := payloadOf(Account, tenant)
	if err != nil {
		t.Fatal(err)
	}
	claim := stored.Claim{Key: stored.Key{Kind: string(Account), Name: "team-a"}, Payload: text}
	if diff := cmp.Diff(tenant, ownedBy(claim).Spec); diff != "" {
		t.Error(diff)
	}
	if _, err := payloadOf(ServiceCluster, tenant); err == nil {
		t.Error("a service cluster was given the spec of an account")
	}
	claim.Payload = `{"newer":1}`
	if got := ownedBy(claim); got.Name != "team-a" || got.Problem == "" || got.Spec != (Spec{}) {
		t.Errorf("a spec of another version is %+v", got)
	}
}
