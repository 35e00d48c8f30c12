// Command coredns is CoreDNS with the few plugins that answer for Services: the
// cluster's own names and the cluster set's. It never forwards a question.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() {
	dnsserver.Directives = []string{"errors", "ready", "kubernetes"}
	coremain.Run()
}
