package client_test

import (
	"context"
	"fmt"
	"log"

	"github.com/xbernetes/xbernetes/api/region/client"
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
	account, err := eu.Create(context.Background(), client.Account, "team-a", client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(account.Name, "has its home in", account.Region)
}
