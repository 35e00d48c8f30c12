package preflight

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/access"
)

func manifest(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "servicesync", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestDeployedDefinitions(t *testing.T) {
	if !bytes.Equal(bytes.Join(v1alpha1.CRDs(), nil), manifest(t, "crds.yaml")) {
		t.Error("deploy/servicesync/crds.yaml is not what api/servicesync/v1alpha1 has: run make generate")
	}
}

// The roles grant all that the controller asks for, and its peers nothing but
// reading.
func TestDeployedRoles(t *testing.T) {
	rules := map[string][]rbacv1.PolicyRule{}
	for _, doc := range strings.Split(string(manifest(t, "rbac.yaml")), "\n---\n") {
		var role rbacv1.ClusterRole // a Role has the same fields
		if err := yaml.Unmarshal([]byte(doc), &role); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(role.Kind, "Role") {
			rules[role.Name] = role.Rules
		}
	}
	granted := func(rules []rbacv1.PolicyRule, group, resource, verb string) bool {
		return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, verb)
		})
	}
	home := &Cluster{Namespace: "xb-servicesync", CreateNamespaces: true, Endpoints: true}
	for _, need := range home.needs() {
		from := rules["xb-servicesync"]
		if need.Scope != "" {
			from = rules["xb-servicesync-publisher"]
		}
		for _, verb := range need.Verbs {
			if !granted(from, need.Group, need.Resource, verb) {
				t.Errorf("no role grants %s %s.%s", verb, need.Resource, need.Group)
			}
		}
	}
	for _, rule := range rules["xb-servicesync-peer"] {
		for _, verb := range rule.Verbs {
			if !slices.Contains([]string{"get", "list", "watch"}, verb) {
				t.Errorf("a peer may %s %s", verb, rule.Resources)
			}
		}
	}
}

// What the shipped roles may do to definitions is bound to their names, which a
// create cannot be.
func TestDeployedRolesBindDefinitions(t *testing.T) {
	for _, name := range []string{"rbac.yaml", "store.yaml"} {
		for _, doc := range strings.Split(string(manifest(t, name)), "\n---\n") {
			var role rbacv1.ClusterRole
			if err := yaml.Unmarshal([]byte(doc), &role); err != nil {
				t.Fatal(err)
			}
			for _, rule := range role.Rules {
				all := strings.Join(append(slices.Clone(rule.Verbs), rule.Resources...), " ")
				if strings.Contains(all, "*") {
					t.Errorf("%s in %s grants %s", role.Name, name, all)
				}
				if slices.Contains(rule.Resources, "customresourcedefinitions") && (len(rule.ResourceNames) != 3 || slices.Contains(rule.Verbs, "create")) {
					t.Errorf("%s in %s may %s definitions of the names %v", role.Name, name, rule.Verbs, rule.ResourceNames)
				}
			}
		}
	}
}

// In a store, a cluster may write what it publishes in its own namespace, and read
// what the others do.
func TestDeployedStoreRoles(t *testing.T) {
	var write, read []rbacv1.PolicyRule
	for _, doc := range strings.Split(strings.ReplaceAll(string(manifest(t, "store.yaml")), "CLUSTER", "east"), "\n---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(doc), &role); err != nil {
			t.Fatal(err)
		}
		switch role.Kind {
		case "Namespace":
			if role.Labels[v1alpha1.LabelCluster] != role.Name || role.Name != "east" {
				t.Errorf("the namespace %s has the labels %v", role.Name, role.Labels)
			}
		case "Role":
			if write = role.Rules; role.Namespace != "east" {
				t.Errorf("it may write in namespace %s", role.Namespace)
			}
		case "ClusterRole":
			read = role.Rules
		}
	}
	granted := func(rules []rbacv1.PolicyRule, group, resource, verb string) bool {
		return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, verb)
		})
	}
	store := &access.API{}
	there := &Cluster{Namespace: "east", Publications: store, Shared: true}
	for _, need := range there.needs() {
		if need.API != store {
			continue
		}
		from := read
		if need.Scope != "" {
			from = write
		}
		for _, verb := range need.Verbs {
			if !granted(from, need.Group, need.Resource, verb) {
				t.Errorf("no role grants %s %s.%s", verb, need.Resource, need.Group)
			}
		}
	}
	for _, rule := range read {
		for _, verb := range rule.Verbs {
			if !slices.Contains([]string{"get", "list", "watch"}, verb) {
				t.Errorf("everybody may %s %s", verb, rule.Resources)
			}
		}
	}
}

func TestDeployment(t *testing.T) {
	var d appsv1.Deployment
	if err := yaml.UnmarshalStrict(manifest(t, "deployment.yaml"), &d); err != nil {
		t.Fatal(err)
	}
}
