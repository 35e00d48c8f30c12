package controlplane

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	admission "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// A server runs with everything that Options can name as a file.
func TestOptionsArePassedOn(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	audit := filepath.Join(dir, "audit.log")
	s := startTest(t, childSettings{
		Addresses: []string{testEtcd(t, "127.0.0.1:0")},
		Options: Options{
			Files: Files{
				AuditPolicyFile: file("policy.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- {level: Metadata, resources: [{group: '', resources: [configmaps]}]}\n"),
				AuthenticationConfig: file("authn.yaml", `
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
anonymous: {enabled: false}
`),
				AuthorizationConfig: file("authz.yaml", `
apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- {type: AlwaysAllow, name: alwaysallow}
- {type: RBAC, name: rbac}
`),
			},
			AuditLogPath:            audit,
			DisableAdmissionPlugins: []string{"ValidatingAdmissionPolicy"},
			RuntimeConfig:           map[string]string{"coordination.k8s.io/v1beta1": "true"},
			FeatureGates:            map[string]bool{"CoordinatedLeaderElection": false},
		},
	})

	if err := configMap(s, "audited"); err != nil {
		t.Fatal(err)
	}
	until(t, "the audit log shows it", func(context.Context) (bool, error) {
		b, err := os.ReadFile(audit)
		return err == nil && strings.Contains(string(b), `"name":"audited"`), err
	})
	anonymous, err := kubernetes.NewForConfig(rest.AnonymousClientConfig(s.config))
	if err != nil {
		t.Fatal(err)
	}
	var code int
	anonymous.Discovery().RESTClient().Get().AbsPath("/version").Do(t.Context()).StatusCode(&code)
	if code != http.StatusUnauthorized {
		t.Errorf("anonymous request: %d, want 401", code)
	}
	if _, err := s.client.Discovery().ServerResourcesForGroupVersion("coordination.k8s.io/v1beta1"); err != nil {
		t.Errorf("API that the runtime configuration switches on: %v", err)
	}
	cfg := rest.CopyConfig(s.config)
	cfg.Impersonate.UserName = "anybody"
	anybody, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := anybody.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("with a permissive authorizer: %v", err)
	}
}

func TestBadOptionIsNamed(t *testing.T) {
	url := testEtcd(t, "127.0.0.1:0")
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{url}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for name, tc := range map[string]struct {
		options Options
		want    string
	}{
		"gate":       {Options{FeatureGates: map[string]bool{"NoSuchGate": true}}, "NoSuchGate"},
		"encryption": {Options{Files: Files{EncryptionProviderConfig: "/nonexistent/encryption.yaml"}}, "/nonexistent/encryption.yaml"},
		"audit":      {Options{Files: Files{AuditPolicyFile: "/nonexistent/audit.yaml"}, AuditLogPath: "-"}, "/nonexistent/audit.yaml"},
		"admission":  {Options{EnableAdmissionPlugins: []string{"NoSuchPlugin"}}, "NoSuchPlugin"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := start(childSettings{Addresses: []string{url}, DataDir: t.TempDir(), Options: tc.options})
			resp, getErr := client.Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithCountOnly())
			if getErr != nil || resp.Count != 0 {
				t.Errorf("the store holds %d keys, %v, after a start that was refused", resp.Count, getErr)
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "panic") {
				t.Fatalf("start: %v, want an error that names %q", err, tc.want)
			}
		})
	}
}

func TestAdmissionWebhook(t *testing.T) {
	p := servers(t)
	ns := namespace(t, p.a)
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admission.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admission.AdmissionResponse{UID: review.Request.UID, Allowed: review.Request.Name != "unwelcome"}
		if !review.Response.Allowed {
			review.Response.Result = &metav1.Status{Message: "not today"}
		}
		_ = json.NewEncoder(w).Encode(review)
	}))
	defer hook.Close()
	fail, none := admissionv1.Fail, admissionv1.SideEffectClassNone
	if _, err := p.a.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "doorman"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name:                    "doorman.test.xbernetes.dev",
			AdmissionReviewVersions: []string{"v1"}, FailurePolicy: &fail, SideEffects: &none,
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": ns}},
			ClientConfig:      admissionv1.WebhookClientConfig{URL: &hook.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
		}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		// Not with t.Context, which has ended by then: the webhook's server is about to stop.
		_ = p.a.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(context.Background(), "doorman", metav1.DeleteOptions{})
	}()
	for i, s := range []*server{p.a, p.b} {
		create := func(name string) error {
			_, err := s.client.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			return err
		}
		until(t, "the webhook is asked", func(ctx context.Context) (bool, error) {
			err := create("unwelcome")
			if err == nil {
				return false, s.client.CoreV1().ConfigMaps(ns).Delete(ctx, "unwelcome", metav1.DeleteOptions{})
			}
			if !strings.Contains(err.Error(), "not today") {
				return false, err
			}
			return true, nil
		})
		if err := create(fmt.Sprintf("welcome-%d", i)); err != nil {
			t.Fatal(err)
		}
	}
}
