package v1alpha1

const modelPrefix = "io.xbernetes.region.v1alpha1."

// OpenAPIModelName is what OpenAPI calls the type.
func (Account) OpenAPIModelName() string { return modelPrefix + "Account" }

// OpenAPIModelName is what OpenAPI calls the type.
func (AccountList) OpenAPIModelName() string { return modelPrefix + "AccountList" }

// OpenAPIModelName is what OpenAPI calls the type.
func (ServiceCluster) OpenAPIModelName() string { return modelPrefix + "ServiceCluster" }

// OpenAPIModelName is what OpenAPI calls the type.
func (ServiceClusterList) OpenAPIModelName() string { return modelPrefix + "ServiceClusterList" }

// OpenAPIModelName is what OpenAPI calls the type.
func (ServiceClusterAssignment) OpenAPIModelName() string {
	return modelPrefix + "ServiceClusterAssignment"
}

// OpenAPIModelName is what OpenAPI calls the type.
func (ServiceClusterAssignmentList) OpenAPIModelName() string {
	return modelPrefix + "ServiceClusterAssignmentList"
}
