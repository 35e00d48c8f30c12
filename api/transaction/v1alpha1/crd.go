package v1alpha1

import _ "embed" // the definition below

//go:embed transaction.xbernetes.io_transactions.yaml
var crd string

// CRD is a CustomResourceDefinition that says what a Transaction looks like, as YAML.
// Do not install it: servers serve the kind by themselves.
func CRD() string { return crd }
