// Package kubeapiserver runs an unmodified kube-apiserver on xb etcd.
package kubeapiserver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/xbernetes/xbernetes/test/lab/apiserver"
	"github.com/xbernetes/xbernetes/test/lab/certificate"
	"github.com/xbernetes/xbernetes/test/lab/network"
	"github.com/xbernetes/xbernetes/test/lab/process"
	"github.com/xbernetes/xbernetes/test/lab/program"
	"github.com/xbernetes/xbernetes/test/lab/xbetcd"
)

const (
	token     = "suite-token"
	namespace = "suite"
)

// TestKillStore fills a kube-apiserver with objects, kills the store under it
// while more are being written, and sees everything again.
func TestKillStore(t *testing.T) {
	ctx := t.Context()
	store := xbetcd.Start(t, nil, xbetcd.FileJournal(t))
	config := startAPIServer(t, store.Endpoint)
	client := kubernetes.NewForConfigOrDie(config)

	before := createObjects(ctx, t, config, client)
	watched := watchConfigMaps(ctx, t, client)

	writing, stopWriting := context.WithCancel(ctx)
	written := make(chan []string, 1)
	progress := make(chan struct{}, 1)
	go func() { written <- writeConfigMaps(writing, client, progress) }()
	awaitWrites := func() {
		for range 20 {
			select {
			case <-progress:
			case <-ctx.Done():
				t.Fatal("no writes succeed")
			}
		}
	}
	for range 3 {
		awaitWrites()
		store.Kill()
		store.Restart(t)
	}
	awaitWrites()
	stopWriting()
	acknowledged := <-written

	if after := objects(ctx, t, config, client); !sameObjects(before, after) {
		t.Errorf("objects before the kills: %v\nafter: %v", before, after)
	}
	checkAcknowledged(ctx, t, client, acknowledged)
	checkWatched(ctx, t, watched, acknowledged)
	checkConsistentReads(ctx, t, client)
}

// startAPIServer runs a kube-apiserver on an etcd endpoint until the test
// ends, waits until it is ready, and returns the way in, as its administrator.
func startAPIServer(t *testing.T, etcd string) *rest.Config {
	t.Helper()
	dir := t.TempDir()
	port := network.FreePort()
	signer, tokens := filepath.Join(dir, "signer.key"), filepath.Join(dir, "tokens.csv")
	if err := certificate.WriteNewKey(signer); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(tokens, []byte(token+`,admin,admin,"system:masters"`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := apiserver.Config{
		Etcd: etcd, Host: "127.0.0.1", Port: port, CertDir: dir, Tokens: tokens, Signer: signer, Services: "10.0.0.0/24",
	}.Flags()
	server := process.Spawn(t, nil, "kube-apiserver", nil, append([]string{program.Need(t, "kube-apiserver")}, flags...)...)
	config := &rest.Config{
		Host:            "https://127.0.0.1:" + port,
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(dir, "apiserver.crt")},
		QPS:             -1,
	}
	err := server.Await(t.Context(), "kube-apiserver is ready", func(ctx context.Context) error {
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err // it has no certificate yet
		}
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
	if err != nil {
		t.Fatalf("kube-apiserver is not ready: %v", err)
	}
	return config
}

var widgets = schema.GroupVersionResource{Group: "suite.example.com", Version: "v1", Resource: "widgets"}

// createObjects makes one of each kind, and returns what objects does.
func createObjects(ctx context.Context, t *testing.T, config *rest.Config, client kubernetes.Interface) map[string]string {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	must(err)
	labels := map[string]string{"app": "suite"}
	_, err = client.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "deployment"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/none"}}},
			},
		},
	}, metav1.CreateOptions{})
	must(err)

	preserve := true
	crds := apiextensions.NewForConfigOrDie(config).ApiextensionsV1().CustomResourceDefinitions()
	_, err = crds.Create(ctx, &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: widgets.GroupResource().String()},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: widgets.Group,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: widgets.Resource, Kind: "Widget"},
			Scope: apiextensionsv1.NamespaceScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: widgets.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &preserve}},
			}},
		},
	}, metav1.CreateOptions{})
	must(err)
	widget := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": widgets.GroupVersion().String(), "kind": "Widget",
		"metadata": map[string]any{"name": "widget"},
		"spec":     map[string]any{"size": "large"},
	}}
	must(wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := dynamic.NewForConfigOrDie(config).Resource(widgets).Namespace(namespace).Create(ctx, widget, metav1.CreateOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil // the definition is not served yet
		}
		return err == nil, err
	}))
	return objects(ctx, t, config, client)
}

// objects returns name and resourceVersion of what createObjects made.
func objects(ctx context.Context, t *testing.T, config *rest.Config, client kubernetes.Interface) map[string]string {
	t.Helper()
	found := map[string]string{}
	add := func(o metav1.Object, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		found[o.GetName()] = string(o.GetUID()) + " " + o.GetResourceVersion()
	}
	add(client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{}))
	add(client.AppsV1().Deployments(namespace).Get(ctx, "deployment", metav1.GetOptions{}))
	add(dynamic.NewForConfigOrDie(config).Resource(widgets).Namespace(namespace).Get(ctx, "widget", metav1.GetOptions{}))
	return found
}

func sameObjects(a, b map[string]string) bool {
	for name := range a {
		if a[name] != b[name] {
			return false
		}
	}
	return len(a) == len(b) && len(a) > 0
}

// watchConfigMaps watches from now on. The watch goes on where it was when its
// connection ends, and is at an end if the server has forgotten where that is.
func watchConfigMaps(ctx context.Context, t *testing.T, client kubernetes.Interface) <-chan watch.Event {
	t.Helper()
	maps := client.CoreV1().ConfigMaps(namespace)
	list, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return maps.Watch(ctx, o) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w.ResultChan()
}

// writeConfigMaps creates one after the other until ctx ends, and returns the
// names of those that were acknowledged.
func writeConfigMaps(ctx context.Context, client kubernetes.Interface, progress chan<- struct{}) (acknowledged []string) {
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("written-%06d", i)
		_, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Data:       map[string]string{"text": strings.Repeat("x", 1000)},
		}, metav1.CreateOptions{})
		if err != nil {
			continue
		}
		acknowledged = append(acknowledged, name)
		select {
		case progress <- struct{}{}:
		case <-ctx.Done():
		}
	}
	return acknowledged
}

func checkAcknowledged(ctx context.Context, t *testing.T, client kubernetes.Interface, names []string) {
	t.Helper()
	list, err := client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, m := range list.Items {
		found[m.Name] = true
	}
	for _, name := range names {
		if !found[name] {
			t.Errorf("%s was acknowledged, and is gone", name)
		}
	}
	t.Logf("%d config maps were acknowledged, %d are there", len(names), len(list.Items))
}

// checkWatched reads the watch up to the last name. Every name must come, in
// order, and none twice; the watch may show more: what was written and not
// acknowledged.
func checkWatched(ctx context.Context, t *testing.T, events <-chan watch.Event, names []string) {
	t.Helper()
	last := ""
	for len(names) > 0 {
		select {
		case e, ok := <-events:
			m, isMap := e.Object.(*corev1.ConfigMap)
			if !ok || e.Type != watch.Added || !isMap {
				t.Fatalf("before %s the watch gave %v", names[0], e)
			}
			if !strings.HasPrefix(m.Name, "written-") {
				continue // Kubernetes' own
			}
			if m.Name <= last {
				t.Fatalf("the watch gave %s after %s", m.Name, last)
			}
			last = m.Name
			if m.Name > names[0] {
				t.Fatalf("the watch left out %s", names[0])
			}
			if m.Name == names[0] {
				names = names[1:]
			}
		case <-time.After(time.Minute):
			t.Fatalf("the watch does not give %s", names[0])
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		}
	}
}

// consistentRead is a line of kube-apiserver's metrics that counts lists which
// were answered from its cache, once the store's progress had vouched for it.
var consistentRead = regexp.MustCompile(`(?m)^apiserver_watch_cache_consistent_read_total{fallback="false",group="",resource="configmaps",success="true"} [1-9]`)

func checkConsistentReads(ctx context.Context, t *testing.T, client kubernetes.Interface) {
	t.Helper()
	metrics, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if !consistentRead.Match(metrics) {
		t.Error("kube-apiserver reads no list consistently from its cache: it does not trust the store's progress")
	}
}
