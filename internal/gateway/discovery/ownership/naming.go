package ownership

import (
	"slices"
	"strings"
)

// AnyGroup in a spec's groups stands for every group that the server serves, except for
// reserved ones.
const AnyGroup = "*"

// reservedDomains are the domains whose groups neither "*" nor "*.io" stands for.
var reservedDomains = []string{"k8s.io", "kubernetes.io", "xbernetes.io"}

// Reserved says whether a group is Kubernetes' or this project's own: the core group, groups
// without a domain, such as apps, and all groups below k8s.io, kubernetes.io and
// xbernetes.io. A server gets a reserved group only if its spec names the group itself, or
// "*.DOMAIN" within one of these domains.
func Reserved(group string) bool {
	return !strings.Contains(group, ".") || inReservedDomain(group)
}

func inReservedDomain(name string) bool {
	return slices.ContainsFunc(reservedDomains, func(d string) bool { return name == d || strings.HasSuffix(name, "."+d) })
}

// Names says whether a spec's groups name a group.
func Names(named []string, group string) bool {
	return slices.ContainsFunc(waysToName(group), func(way string) bool { return slices.Contains(named, way) })
}

// waysToName returns the entries of a spec's groups that name a group, the closest first:
// the group's whole name, then "*.DOMAIN" for each domain that it is in, from the longest to
// the shortest, then "*".
func waysToName(group string) []string {
	ways := []string{group}
	for _, domain, in := strings.Cut(group, "."); in; _, domain, in = strings.Cut(domain, ".") {
		if !Reserved(group) || inReservedDomain(domain) {
			ways = append(ways, AnyGroup+"."+domain)
		}
	}
	if !Reserved(group) {
		ways = append(ways, AnyGroup)
	}
	return ways
}

// namings maps an entry of specs' groups to the servers that have it.
type namings map[string][]string

func namingsOf(claims []Claim) namings {
	n := namings{}
	for _, c := range claims {
		for _, entry := range c.Named {
			n[entry] = append(n[entry], c.Server)
		}
	}
	return n
}

// rightful returns the servers whose specs name a group most closely; nil if none names it.
func (n namings) rightful(group string) []string {
	for _, way := range waysToName(group) {
		if servers := n[way]; servers != nil {
			return servers
		}
	}
	return nil
}
