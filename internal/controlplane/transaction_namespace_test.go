package controlplane

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	admissionreview "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/api/transaction/client"
)

// TestTransactionsNamespaceIsJudged: webhooks and policies that look at the namespace of an
// object see the one that the same transaction creates, with its labels. Nobody else can use
// that namespace meanwhile.
func TestTransactionsNamespaceIsJudged(t *testing.T) {
	p := servers(t)
	id := fmt.Sprint("judged-", time.Now().UnixNano())
	intrusion := make(chan error, 100)
	judge(t, p.a, id, func(namespace string) {
		_, err := p.a.client.CoreV1().Secrets(namespace).Create(context.Background(), labelled("intruder", nil), metav1.CreateOptions{})
		intrusion <- err
	})
	n := 0
	send := func(ctx context.Context, guarded bool, labels map[string]string) (string, error) {
		n++
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(id, "-", n), Labels: map[string]string{"team": "red"}}}
		if guarded {
			ns.Labels["guarded"] = id
		}
		secret := labelled("one", labels)
		secret.Namespace = ns.Name
		_, err := transactions(t, p.a).Do(ctx, client.Create(ns), client.Create(secret))
		return ns.Name, err
	}
	for by, labels := range map[string]map[string]string{
		"the webhook": {"team": "red", "webhook": "refuse"},
		"the policy":  {"team": "blue"},
	} {
		until(t, by+" refuses", func(ctx context.Context) (bool, error) {
			ns, err := send(ctx, true, labels)
			if err == nil {
				return false, nil // not known yet
			}
			if !strings.Contains(err.Error(), "nothing was changed: spec.operations[1]") || !strings.Contains(err.Error(), by) {
				t.Fatalf("refused, but not by %s: %v", by, err)
			}
			if _, err := p.a.client.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("after the refusal, the namespace: %v; want not found", err)
			}
			return true, nil
		})
	}
	for len(intrusion) > 0 {
		<-intrusion
	}
	if _, err := send(t.Context(), true, map[string]string{"team": "red"}); err != nil {
		t.Errorf("what webhook and policy allow: %v", err)
	}
	if len(intrusion) == 0 {
		t.Error("the webhook was not asked")
	} else if err := <-intrusion; !apierrors.IsNotFound(err) {
		t.Errorf("a plain request into the namespace, while the transaction creates it: %v; want not found", err)
	}
	if _, err := send(t.Context(), false, map[string]string{"team": "blue", "webhook": "refuse"}); err != nil {
		t.Errorf("in a namespace without the label: %v", err)
	}
}

func labelled(name string, labels map[string]string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

// judge has secrets in namespaces with the label guarded=id judged by a webhook, which calls
// asked before it answers, and by a policy, which wants the team of the namespace.
func judge(t *testing.T, s *server, id string, asked func(namespace string)) {
	t.Helper()
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionreview.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		asked(review.Request.Namespace)
		answer := &admissionreview.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		if strings.Contains(string(review.Request.Object.Raw), `"webhook":"refuse"`) {
			answer.Allowed, answer.Result = false, &metav1.Status{Message: "refused by the webhook"}
		}
		review.Request, review.Response = nil, answer
		_ = json.NewEncoder(w).Encode(review) // without an answer, the request is refused
	}))
	t.Cleanup(hook.Close)
	fail, deny, none := admissionv1.Fail, admissionv1.Deny, admissionv1.SideEffectClassNone
	guarded := &metav1.LabelSelector{MatchLabels: map[string]string{"guarded": id}}
	rule := admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create},
		Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"}},
	}
	api := s.client.AdmissionregistrationV1()
	_, err := api.ValidatingWebhookConfigurations().Create(t.Context(), &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: id},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "judge.test.xbernetes.dev", AdmissionReviewVersions: []string{"v1"}, FailurePolicy: &fail, SideEffects: &none,
			NamespaceSelector: guarded, Rules: []admissionv1.RuleWithOperations{rule},
			// The intruder's own request would be judged, and judged again.
			MatchConditions: []admissionv1.MatchCondition{{Name: "other", Expression: `object.metadata.name != "intruder"`}},
			ClientConfig:    admissionv1.WebhookClientConfig{URL: &hook.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})},
		}},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		_ = api.ValidatingWebhookConfigurations().Delete(context.Background(), id, metav1.DeleteOptions{})
	})
	_, err = api.ValidatingAdmissionPolicies().Create(t.Context(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: id},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: guarded, ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: rule}},
			},
			Validations: []admissionv1.Validation{{Expression: `namespaceObject.metadata.labels["team"] == object.metadata.labels["team"]`, Message: "refused by the policy"}},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { _ = api.ValidatingAdmissionPolicies().Delete(context.Background(), id, metav1.DeleteOptions{}) })
	_, err = api.ValidatingAdmissionPolicyBindings().Create(t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: id},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: id, ValidationActions: []admissionv1.ValidationAction{deny}},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		_ = api.ValidatingAdmissionPolicyBindings().Delete(context.Background(), id, metav1.DeleteOptions{})
	})
}
