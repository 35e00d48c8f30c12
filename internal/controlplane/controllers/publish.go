package controllers

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/client-go/util/keyutil"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	serviceaccountcontroller "k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

// publish keeps kube-root-ca.crt in every namespace, and fills token secrets.
// Both hold the bundle of all servers' CAs, so their controllers are started anew
// when it changes.
func (t *term) publish(context.Context) (func(context.Context), error) {
	// Their informers have to exist before the factory starts.
	t.typed.Core().V1().ConfigMaps().Informer()
	t.typed.Core().V1().Secrets().Informer()
	return func(ctx context.Context) {
		for ctx.Err() == nil {
			trust, changed := t.Roster.Current()
			until, cancel := context.WithCancel(ctx)
			done := make(chan struct{})
			go func() {
				defer close(done)
				if err := t.publishBundle(until, trust.Bundle); err != nil {
					t.Log.Error("cannot publish the CA bundle", "error", err)
				}
			}()
			select {
			case <-ctx.Done():
			case <-changed:
			}
			cancel()
			<-done
		}
	}, nil
}

func (t *term) publishBundle(ctx context.Context, bundle []byte) error {
	core := t.typed.Core().V1()
	publisher, err := rootcacertpublisher.NewPublisher(core.ConfigMaps(), core.Namespaces(), t.client, bundle)
	if err != nil {
		return fmt.Errorf("make root CA publisher: %w", err)
	}
	key, err := keyutil.ParsePrivateKeyPEM(t.Identity.ServiceAccountKey)
	if err != nil {
		return fmt.Errorf("parse service-account key: %w", err)
	}
	generator, err := serviceaccount.JWTTokenGenerator(serviceaccount.LegacyIssuer, key)
	if err != nil {
		return fmt.Errorf("make token generator: %w", err)
	}
	tokens, err := serviceaccountcontroller.NewTokensController(klog.FromContext(ctx), core.ServiceAccounts(), core.Secrets(), t.client,
		serviceaccountcontroller.TokensControllerOptions{TokenGenerator: generator, RootCA: bundle})
	if err != nil {
		return fmt.Errorf("make token controller: %w", err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { publisher.Run(ctx, 2) })
	wg.Go(func() { tokens.Run(ctx, 2) })
	wg.Wait()
	return nil
}
