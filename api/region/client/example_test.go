package client_test

import (
	"context"
	"fmt"
	"log"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/xbernetes/xbernetes/api/region/client"
	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
)

func Example() {
	config, err := client.Load("regions.yaml")
	if err != nil {
		log.Fatal(err)
	}
	regions, err := client.Open(config, nil)
	if err != nil {
		log.Fatal(err)
	}
	eu, err := regions.In("eu")
	if err != nil {
		log.Fatal(err)
	}
	spec := client.Spec{Account: &v1alpha1.AccountSpec{
		Roles:    []v1alpha1.AccountRole{v1alpha1.Tenant},
		Subjects: []rbacv1.Subject{{Kind: "User", Name: "anna"}},
	}}
	account, err := eu.Create(context.Background(), client.Account, "team-a", client.Options{Spec: spec})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(account.Name, "has its home in", account.Region)
}
