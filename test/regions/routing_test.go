package regions

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/xbernetes/xbernetes/test/lab/network"
)

// facade is xb region serve, as one of its users reaches it.
type facade struct {
	url    string
	client *http.Client
}

// serve starts a facade in Europe, and waits until it leads to all regions.
func (w *world) serve() *facade {
	w.Helper()
	for _, s := range w.regions {
		_, err := s.kube.RbacV1().ClusterRoleBindings().Create(w.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "olga"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "olga"}},
		}, metav1.CreateOptions{})
		w.must(err)
	}
	address, data := network.FreeAddr("127.0.0.1"), filepath.Join(w.dir, "facade")
	w.start("facade", w.xb, "region", "serve", "--regions", w.file("eu"), "--listen", address, "--data-dir", data)
	f := &facade{url: "https://" + address}
	w.comes("the facade leads to all regions", func(ctx context.Context) error {
		if f.client == nil {
			if _, err := os.Stat(filepath.Join(data, "kubeconfig")); err != nil {
				return err
			}
			config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(data, "kubeconfig"))
			if err != nil {
				return err
			}
			config.BearerToken = w.issuer.token(w.T, "olga")
			if f.client, err = rest.HTTPClientFor(config); err != nil {
				return err
			}
		}
		for name := range w.regions {
			if err := f.get(ctx, "/regions/"+name); err != nil {
				return err
			}
		}
		return nil
	})
	return f
}

// get asks for a namespace of the API below a path of the facade.
func (f *facade) get(ctx context.Context, below string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+below+"/api/v1/namespaces/default", nil)
	if err != nil {
		return err
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", below, resp.Status)
	}
	return nil
}

// leads asks for the paths, one after the other, until ctx ends, and returns how many requests
// were answered, and the first that failed.
func (f *facade) leads(ctx context.Context, paths []string) (answered int, err error) {
	for {
		for _, path := range paths {
			if ctx.Err() != nil {
				return answered, nil
			}
			if err := f.get(context.WithoutCancel(ctx), path); err != nil {
				return answered, err
			}
			answered++
		}
	}
}
