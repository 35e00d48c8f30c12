package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/mcs-api/config/crd"
	"sigs.k8s.io/yaml"

	"github.com/xbernetes/xbernetes/test/lab/program"
	"github.com/xbernetes/xbernetes/test/lab/wait"
)

// definitions are service sync's own, as its users install them, and those of
// the Multi-Cluster Services API.
func definitions() ([][]byte, error) {
	manifests := [][]byte{crd.ServiceExportCRD, crd.ServiceImportCRD}
	files, err := filepath.Glob(filepath.Join(program.Repository(), "api", "servicesync", "v1alpha1", "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("find the definitions of service sync: %w", err)
	}
	if len(files) == 0 {
		return nil, errors.New("find the definitions of service sync: there are none")
	}
	for _, file := range files {
		manifest, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		manifests = append(manifests, manifest)
	}
	return manifests, nil
}

// InstallCRDs creates the definitions that service sync works with, and waits
// until the API server serves them.
func (c *Cluster) InstallCRDs(ctx context.Context) error {
	manifests, err := definitions()
	if err != nil {
		return err
	}
	client, err := apiextensions.NewForConfig(c.Config)
	if err != nil {
		return err
	}
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	for _, manifest := range manifests {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(manifest, &crd); err != nil {
			return fmt.Errorf("read definition: %w", err)
		}
		if _, err := crds.Create(ctx, &crd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create definition %s: %w", crd.Name, err)
		}
		if err := wait.Until(ctx, crd.Name+" is served", func(ctx context.Context) error {
			is, err := crds.Get(ctx, crd.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, condition := range is.Status.Conditions {
				if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
					return nil
				}
			}
			return fmt.Errorf("%s is not established", crd.Name)
		}); err != nil {
			return err
		}
	}
	return nil
}
