//go:build never

package main

// What the runner tests and builds, so that go.mod holds what they and their
// tests need.
import (
	_ "k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	_ "k8s.io/apiserver/pkg/reconcilers"
	_ "k8s.io/apiserver/pkg/registry/generic/registry"
	_ "k8s.io/apiserver/pkg/storage/cacher"
	_ "k8s.io/apiserver/pkg/storage/etcd3"
	_ "k8s.io/apiserver/pkg/storage/storagebackend/factory"
)
