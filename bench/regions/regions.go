// Package regions measures how long a name takes to have its owner in all regions, and what the
// facade of regions adds to a region's API. It never measures the agents.
package regions

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/bench/front"
	"github.com/xbernetes/xbernetes/bench/kubeserver"
	"github.com/xbernetes/xbernetes/bench/measure"
)

// Overhead measures what the facade of regions adds to a region's API: the same get directly,
// below /regions/, and below /serviceclusters/, whose route the facade remembers.
func Overhead(ctx context.Context, cfg measure.Config) ([]measure.Comparison, error) {
	dir := filepath.Join(cfg.Dir, "regions")
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	c, err := kubeserver.StartXB(ctx, cfg, dir)
	if err != nil {
		return nil, err
	}
	defer c.Stop()
	fronts, err := startFacade(ctx, cfg, dir, c)
	if err != nil {
		return nil, err
	}
	defer fronts[1].Close()
	gets := measure.NewComparison(fmt.Sprintf("get a namespace, %d a second", front.Rate), fronts[0].Name, fronts[1].Name, fronts[2].Name)
	for round := range cfg.Rounds {
		for _, f := range fronts {
			fmt.Fprintf(os.Stderr, "regions: round %d, %s\n", round+1, f.Name)
			m, err := f.Gets(ctx, "/api/v1/namespaces/default", max(1, int(10*front.Rate*cfg.Scale)))
			if err != nil {
				return []measure.Comparison{*gets}, fmt.Errorf("get, %s: %w", f.Name, err)
			}
			gets.Add(f.Name, m)
		}
	}
	return []measure.Comparison{*gets}, nil
}

// startFacade makes a server a region with a service cluster, and puts a facade before it. It
// returns the ways to the server.
func startFacade(ctx context.Context, cfg measure.Config, dir string, c *kubeserver.Cluster) ([]front.Front, error) {
	list := filepath.Join(dir, "regions.yaml")
	if err := os.WriteFile(list, []byte("register: eu\nregions: {eu: kubeconfig}\n"), 0o600); err != nil {
		return nil, err
	}
	for _, args := range [][]string{{"region", "join", "eu"}, {"servicecluster", "create", "tokyo", "--region", "eu"}} {
		if out, err := exec.CommandContext(ctx, cfg.XB, append(args, "--regions", list)...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("xb %v: %w: %s", args, err, out)
		}
	}
	token, err := adminToken(ctx, c)
	if err != nil {
		return nil, err
	}
	direct := rest.AnonymousClientConfig(c.Config)
	direct.BearerToken, direct.QPS = token, -1
	client, err := rest.HTTPClientFor(direct)
	if err != nil {
		return nil, err
	}
	through, err := serve(ctx, cfg, dir, list, token)
	if err != nil {
		return nil, err
	}
	facade := through.Base
	through.Name, through.Base = "/regions/eu", facade+"/regions/eu"
	if _, err := through.Get(ctx, "/version"); err != nil {
		through.Close()
		return nil, err
	}
	routed := through
	routed.Name, routed.Base = "/serviceclusters/tokyo", facade+"/serviceclusters/tokyo"
	return []front.Front{{Name: "direct", Base: c.Config.Host, Client: client, Servers: c.Servers}, through, routed}, nil
}

// adminToken returns a token that may do everything.
func adminToken(ctx context.Context, c *kubeserver.Cluster) (string, error) {
	client, err := c.Client()
	if err != nil {
		return "", err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "bench"}}
	if _, err := client.CoreV1().ServiceAccounts("default").Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "bench"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "bench"}},
	}, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	answer, err := client.CoreV1().ServiceAccounts("default").CreateToken(ctx, "bench", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return answer.Status.Token, nil
}
