// Package kubernetes runs Kubernetes' own end-to-end tests of discovery,
// OpenAPI and watches through the gateway, unmodified. It holds no spec.
package kubernetes
