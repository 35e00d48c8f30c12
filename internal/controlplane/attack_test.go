package controlplane

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	dave := s.ordinaryUser(t, ns, "dave")
	var attackers []string
	for i := range 20 {
		attackers = append(attackers, s.ordinaryUser(t, ns, fmt.Sprintf("attacker-%d", i)))
	}
	client := s.clientOf(t, dave)
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

// TestManyWatchesLeaveRoom: an ordinary user opens watches until the server refuses
// more. Another user can still open a watch, and an administrator any number.
func TestManyWatchesLeaveRoom(t *testing.T) {
	const most = 20
	s := startTest(t, childSettings{
		Addresses: []string{testEtcd(t, "127.0.0.1:0")}, ServerID: "a", LeaderElection: fast, Options: Options{MaxWatches: most},
	})
	ns := namespace(t, s)
	watch := func(client *kubernetes.Clientset) error {
		w, err := client.CoreV1().ConfigMaps(ns).Watch(t.Context(), metav1.ListOptions{})
		if err == nil {
			t.Cleanup(w.Stop)
		}
		return err
	}
	eve, dave := s.clientOf(t, s.ordinaryUser(t, ns, "eve")), s.clientOf(t, s.ordinaryUser(t, ns, "dave"))
	for _, client := range []*kubernetes.Clientset{eve, dave} {
		until(t, "both may watch", func(ctx context.Context) (bool, error) {
			_, err := client.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{})
			return err == nil, nil
		})
	}
	got := 0
	for err := error(nil); err == nil && got <= most; got++ {
		if err = watch(eve); err != nil && !apierrors.IsTooManyRequests(err) {
			t.Fatalf("watch %d: %v", got, err)
		}
	}
	if got > most {
		t.Errorf("one user got %d watches of %d", got, most)
	}
	if err := watch(dave); err != nil {
		t.Errorf("another user, while one has all the watches that it can: %v", err)
	}
	for range most {
		if err := watch(s.client); err != nil {
			t.Fatalf("an administrator meanwhile: %v", err)
		}
	}
}

// TestManyConnectionsLeaveRoom: one address opens connections until the server
// accepts no more of them. Other addresses can still connect.
func TestManyConnectionsLeaveRoom(t *testing.T) {
	const most = 60
	s := startTest(t, childSettings{
		Addresses: []string{testEtcd(t, "127.0.0.1:0")}, ServerID: "a", LeaderElection: fast, Options: Options{MaxConnections: most},
	})
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	open := 0
	for range 2 * most {
		tcp, err := from.DialContext(t.Context(), "tcp", strings.TrimPrefix(s.config.Host, "https://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { tcp.Close() })
		if tls.Client(tcp, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(t.Context()) == nil {
			open++
		}
	}
	if open == 0 || open > most/2 {
		t.Errorf("one address has %d of %d connections", open, most)
	}
	anew := rest.CopyConfig(s.config)
	anew.Dial = (&net.Dialer{}).DialContext // of its own: no connection is shared
	client, err := kubernetes.NewForConfig(anew)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("from another address meanwhile: %v", err)
	}
}

// ordinaryUser makes a user who may do anything in one namespace, and returns a
// token of it.
func (s *server) ordinaryUser(t *testing.T, ns, name string) (token string) {
	t.Helper()
	accounts := s.client.CoreV1().ServiceAccounts(ns)
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.RbacV1().RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: name}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got.Status.Token
}

// clientOf is a client with a token.
func (s *server) clientOf(t *testing.T, token string) *kubernetes.Clientset {
	t.Helper()
	config := rest.AnonymousClientConfig(s.config)
	config.BearerToken, config.QPS = token, -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
