package v1alpha1

import _ "embed" // the definition below

//go:embed aggregation.xbernetes.io_remoteapiservers.yaml
var crd string

// CRD is the CustomResourceDefinition of RemoteAPIServer, as YAML.
func CRD() string { return crd }
