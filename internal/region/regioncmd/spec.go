package regioncmd

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/xbernetes/xbernetes/api/region/client"
	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
)

// specFlags registers the flags that say what a name stands for, and returns what reads them.
type specFlags func(*pflag.FlagSet) func() (client.Spec, error)

func accountFlags(fs *pflag.FlagSet) func() (client.Spec, error) {
	var roles, subjects []string
	fs.StringSliceVar(&roles, "role", nil, "what the account does: tenant or provider; more than once for both")
	fs.StringArrayVar(&subjects, "subject", nil, "who acts for it: user:NAME, group:NAME or serviceaccount:NAMESPACE:NAME; more than once")
	return func() (client.Spec, error) {
		spec := v1alpha1.AccountSpec{}
		for _, role := range roles {
			known := map[string]v1alpha1.AccountRole{"tenant": v1alpha1.Tenant, "provider": v1alpha1.Provider}
			if known[role] == "" {
				return client.Spec{}, fmt.Errorf("--role is %q; want tenant or provider", role)
			}
			spec.Roles = append(spec.Roles, known[role])
		}
		for _, subject := range subjects {
			s, err := subjectOf(subject)
			if err != nil {
				return client.Spec{}, err
			}
			spec.Subjects = append(spec.Subjects, s)
		}
		return client.Spec{Account: &spec}, nil
	}
}

// subjectOf reads KIND:NAME. A name may have colons, as system:masters has.
func subjectOf(word string) (rbacv1.Subject, error) {
	kind, name, _ := strings.Cut(word, ":")
	switch namespace, account, named := strings.Cut(name, ":"); {
	case kind == "user" && name != "":
		return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}, nil
	case kind == "group" && name != "":
		return rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: name}, nil
	case kind == "serviceaccount" && named:
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}, nil
	}
	return rbacv1.Subject{}, fmt.Errorf("--subject is %q; want user:NAME, group:NAME or serviceaccount:NAMESPACE:NAME", word)
}

func serviceClusterFlags(fs *pflag.FlagSet) func() (client.Spec, error) {
	secret := ""
	fs.StringVar(&secret, "kubeconfig-secret", "", "Secret in the home region that has the kubeconfig, as NAMESPACE/NAME; nothing of it leaves that region (default: nobody connects to the service cluster)")
	return func() (client.Spec, error) {
		if secret == "" {
			return client.Spec{}, nil
		}
		namespace, name, ok := strings.Cut(secret, "/")
		if !ok {
			return client.Spec{}, fmt.Errorf("--kubeconfig-secret is %q; want NAMESPACE/NAME", secret)
		}
		return client.Spec{ServiceCluster: &v1alpha1.ServiceClusterSpec{
			KubeconfigSecret: &v1alpha1.SecretReference{Namespace: namespace, Name: name},
		}}, nil
	}
}
