#!/bin/sh
# peer-kubeconfig.sh CONTEXT [DURATION]
#
# Prints a kubeconfig with which another cluster reads what the cluster of a kubectl
# context publishes, and can do nothing else. Its token ends after DURATION (24h):
# print a new one before that, and put it where the old one was.
set -eu
context=$1
duration=${2:-24h}
umask 077
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

of() { kubectl --context "$context" config view --minify --raw --flatten -o jsonpath="{.clusters[0].cluster.$1}"; }
make() { kubectl --kubeconfig "$dir/made" config "$@" >/dev/null; }

make set-cluster peer --server "$(of server)"
of certificate-authority-data | base64 -d >"$dir/ca"
if [ -s "$dir/ca" ]; then
	make set-cluster peer --certificate-authority "$dir/ca" --embed-certs
fi
make set-credentials xb-servicesync-peer --token "$(kubectl --context "$context" -n xb-servicesync create token xb-servicesync-peer --duration "$duration")"
make set-context peer --cluster peer --user xb-servicesync-peer
make use-context peer
cat "$dir/made"
