package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/xbernetes/xbernetes/test/gateway/world"
	"github.com/xbernetes/xbernetes/test/lab/process"
	"github.com/xbernetes/xbernetes/test/lab/program"
	"github.com/xbernetes/xbernetes/test/lab/wait"
)

// TestRegistered registers a server by an object in a Kubernetes API, with the
// gateway's credentials in a Secret, and removes it again.
func TestRegistered(t *testing.T) {
	w := world.Start(t)
	crd, err := process.Run(t, nil, nil, "", program.Need(t, "xb"), "gateway", "crd")
	if err != nil {
		t.Fatal(err)
	}
	w.Core.Kubectl(t, crd, "apply", "-f", "-")
	wait.Poll(t, time.Minute, "RemoteAPIServers are served", func(context.Context) error {
		_, err := w.Core.TryKubectl(t, "", "get", "remoteapiservers")
		return err
	})
	w.Core.Kubectl(t, "", "create", "secret", "generic", "flunders", "-n", "default", "--from-literal=token="+world.Token)
	w.Core.Kubectl(t, "", "label", "secret", "flunders", "-n", "default", "aggregation.xbernetes.io/server=flunders")
	gateway := w.StartGateway(t, "watching", "--kubeconfig", w.Core.Kubeconfig, "--credentials-namespace", "default")
	typed, dyn := gateway.Clients(t)
	has := func() (bool, error) {
		groups, err := typed.Discovery().ServerGroups()
		if err != nil {
			return false, err
		}
		return slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == flunders.Group }), nil
	}
	entry := world.Entry(t, "flunders", w.Sample.URL, w.Sample.CAFile, "groups: ["+flunders.Group+"]", "identity: {mode: PassThrough, credentials: {secretName: flunders}}")
	registration := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(entry), &registration.Object); err != nil {
		t.Fatal(err)
	}
	_, registry := w.Core.Clients(t)
	servers := registry.Resource(schema.GroupVersionResource{Group: "aggregation.xbernetes.io", Version: "v1alpha1", Resource: "remoteapiservers"})
	for range 3 {
		if _, err := servers.Create(t.Context(), registration, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		in := wait.Poll(t, appearsWithin, "the server appears", func(ctx context.Context) error {
			if there, err := has(); err != nil || !there {
				return errors.Join(errors.New("discovery does not have its group"), err)
			}
			_, err := dyn.Resource(flunders).List(ctx, metav1.ListOptions{})
			return err
		})
		wait.Poll(t, time.Minute, "kubectl get remoteapiservers shows it at a glance", func(context.Context) error {
			out := w.Core.Kubectl(t, "", "get", "remoteapiservers")
			if fields := strings.Fields(out); !strings.Contains(out, "flunders") || !slices.Contains(fields, "Answering") || !slices.Contains(fields, "True") {
				return fmt.Errorf("it prints:\n%s", out)
			}
			return nil
		})
		if err := servers.Delete(t.Context(), "flunders", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		out := wait.Poll(t, appearsWithin, "the server goes", func(ctx context.Context) error {
			if there, err := has(); err != nil || there {
				return errors.Join(errors.New("discovery still has its group"), err)
			}
			if _, err := dyn.Resource(flunders).List(ctx, metav1.ListOptions{}); err == nil {
				return errors.New("it still answers")
			}
			return nil
		})
		t.Logf("added after %v, removed after %v", in.Round(time.Millisecond), out.Round(time.Millisecond))
	}
	// A Secret that is another server's is not lent.
	w.Core.Kubectl(t, strings.Replace(entry, "name: flunders", "name: borrower", 1), "apply", "-f", "-")
	wait.Poll(t, time.Minute, "the borrower is refused", func(context.Context) error {
		out := w.Core.Kubectl(t, "", "get", "remoteapiserver", "borrower", "-o", `jsonpath={.status.conditions[?(@.type=="Available")].status} {.status.conditions[?(@.type=="Available")].message}`)
		if !strings.HasPrefix(out, "False ") {
			return fmt.Errorf("it is %s", out)
		}
		return nil
	})
	t.Log(w.Core.Kubectl(t, "", "get", "remoteapiservers", "-o", "wide"))
}
