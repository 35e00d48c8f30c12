package controlplane

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestSlowBodiesHoldNoPlaces: ordinary users send many requests whose bodies do
// not end. Another ordinary user's requests are served meanwhile, at the first
// attempt.
func TestSlowBodiesHoldNoPlaces(t *testing.T) {
	s := startTest(t, childSettings{Addresses: []string{testEtcd(t, "127.0.0.1:0")}, ServerID: "a", LeaderElection: fast})
	ns := namespace(t, s)
	token := func(name string) string {
		accounts := s.client.CoreV1().ServiceAccounts(ns)
		if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		got, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return got.Status.Token
	}
	dave := token("dave")
	var attackers []string
	for i := range 20 {
		attackers = append(attackers, token(fmt.Sprintf("attacker-%d", i)))
	}
	if _, err := s.client.RbacV1().RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "writers"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "system:serviceaccounts:" + ns}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(s.config)
	config.BearerToken = dave
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "dave may write", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "before-"}}, metav1.CreateOptions{})
		return err == nil, nil
	})
	address := strings.TrimPrefix(s.config.Host, "https://")
	for i := range 1600 {
		c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "POST /api/v1/namespaces/%s/configmaps HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", ns, attackers[i%len(attackers)])
	}
	for i := range 3 {
		err := client.CoreV1().RESTClient().Post().Namespace(ns).Resource("configmaps").MaxRetries(0).
			Body(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("meanwhile-%d", i)}}).Do(t.Context()).Error()
		if err != nil {
			t.Errorf("another user, while bodies are slow: %v", err)
		}
	}
}
