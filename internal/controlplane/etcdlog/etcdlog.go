// Package etcdlog keeps etcd's clients in the API server from writing lines of
// their own format to standard error, past the logger. It loses nothing: what
// they have to say comes back as the error of the call.
package etcdlog

import "go.etcd.io/etcd/client/pkg/v3/logutil"

// The API server's storage makes the logger of all its clients when its package,
// k8s.io/apiserver/pkg/storage/storagebackend/factory, is initialized, from this
// variable, and takes no other. Of packages that do not import each other, Go
// initializes the one whose path sorts first, so this one comes before.
func init() {
	logutil.DefaultZapLoggerConfig.OutputPaths = nil
	logutil.DefaultZapLoggerConfig.ErrorOutputPaths = nil
}
