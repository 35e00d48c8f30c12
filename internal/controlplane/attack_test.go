package controlplane

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"golang.org/x/sync/errgroup"
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

// TestUnreadAnswersHoldNoPlaces: an ordinary user asks for many long lists and reads none of
// them, over HTTP/1.1 and over HTTP/2 with a window of no byte. Until the last list was given
// seats or refused them, another ordinary user's requests are served at the first attempt.
func TestUnreadAnswersHoldNoPlaces(t *testing.T) {
	s := startTest(t, childSettings{Addresses: []string{testEtcd(t, "127.0.0.1:0")}, ServerID: "a", LeaderElection: fast})
	ns := namespace(t, s)
	eve := s.ordinaryUser(t, ns, "eve")
	client := s.clientOf(t, s.ordinaryUser(t, ns, "dave"))
	until(t, "dave may write", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "before-"}}, metav1.CreateOptions{})
		return err == nil, nil
	})
	s.fillWith(t, ns, 1000, 16<<10) // a list of 1,000 objects takes ten seats, and no buffer holds it
	path := "/api/v1/namespaces/" + ns + "/configmaps"
	for _, attack := range []struct {
		name  string
		begin func(t *testing.T, s *server, path, token string)
	}{{"HTTP/1.1", unreadLists}, {"HTTP/2", unreadStreams}} {
		t.Run(attack.name, func(t *testing.T) {
			before := s.decided(t)
			attack.begin(t, s, path, eve)
			for posts := 0; s.decided(t)-before < unread+posts && !t.Failed(); posts++ {
				err := client.CoreV1().RESTClient().Post().Namespace(ns).Resource("configmaps").MaxRetries(0).
					Body(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "meanwhile-"}}).Do(t.Context()).Error()
				if err != nil {
					t.Errorf("another user, while answers are held up: %v", err)
				}
			}
		})
	}
}

// unread is how many lists an attack asks for. Those that may run at once are far fewer.
const unread = 400

// decided returns how many requests of service accounts were given seats, or refused them.
func (s *server) decided(t *testing.T) (requests int) {
	t.Helper()
	metrics, err := s.client.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	must(t, err)
	for _, found := range decisions.FindAllSubmatch(metrics, -1) {
		n, err := strconv.Atoi(string(found[1]))
		must(t, err)
		requests += n
	}
	return requests
}

var decisions = regexp.MustCompile(`(?m)^apiserver_flowcontrol_(?:dispatched|rejected)_requests_total\{flow_schema="service-accounts",.*\} (\d+)$`)

// fillWith creates so many ConfigMaps of so many bytes.
func (s *server) fillWith(t *testing.T, ns string, count, size int) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(8)
	for i := range count {
		group.Go(func() error {
			_, err := s.client.CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("large-%d", i)}, Data: map[string]string{"k": strings.Repeat("x", size)},
			}, metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// dial opens a connection that takes little before it is read.
func (s *server) dial(t *testing.T, protocol string) *tls.Conn {
	t.Helper()
	from := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4<<10)
		}), err)
	}}
	c, err := tls.DialWithDialer(&from, "tcp", strings.TrimPrefix(s.config.Host, "https://"), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// unreadLists asks for the lists on connections of their own.
func unreadLists(t *testing.T, s *server, path, token string) {
	var all []*tls.Conn
	for range unread {
		all = append(all, s.dial(t, "http/1.1"))
	}
	for _, c := range all { // all at once: opening connections may take longer than serving lists
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", path, token)
	}
}

// unreadStreams asks for the lists on a few connections, and takes no byte of the answers.
func unreadStreams(t *testing.T, s *server, path, token string) {
	for range unread / 100 {
		c := s.dial(t, "h2")
		fmt.Fprint(c, http2.ClientPreface)
		f := http2.NewFramer(c, c)
		must(t, f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
		var block bytes.Buffer
		for i := range 100 {
			block.Reset()
			h := hpack.NewEncoder(&block)
			h.SetMaxDynamicTableSizeLimit(0)
			for _, field := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "x"}, {":path", path}, {"authorization", "Bearer " + token}} {
				must(t, h.WriteField(hpack.HeaderField{Name: field[0], Value: field[1], Sensitive: true}))
			}
			must(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true}))
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
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
