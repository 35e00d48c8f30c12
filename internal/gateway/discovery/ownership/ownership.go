// Package ownership gives each API group to one of the servers that claim it. It never
// asks a server anything, and remembers nothing: who held a group before is told to it.
package ownership

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Claim is what one server asks for.
type Claim struct {
	// Server is its name.
	Server string
	// Named are the groups of its spec.
	Named []string
	// Groups are those that it claims, as Claims gives them. Invariant: Named
	// names each.
	Groups []string
	// Priority settles who gets a group that nobody holds: the higher.
	Priority int32
	// Created settles it among equals: the earlier. The name settles the rest.
	Created time.Time
}

// Assignment says which server holds which group. It is never changed once made.
type Assignment struct {
	// Holder is the server of each group.
	Holder map[string]string
	// Refused are, by server, the groups that it claims and does not get.
	Refused map[string][]Refusal

	named namings
}

// Refusal is a group that a server claims and does not get.
type Refusal struct {
	Group string
	// Server holds the group, or is the one that it is named for.
	Server string
	// Named: the group is named for Server more closely, whether or not Server
	// serves it now.
	Named bool
}

// MayHold says whether a server may hold a group: its spec names the group, and
// no other's does so more closely.
func (o Assignment) MayHold(server, group string) bool {
	return slices.Contains(o.named.rightful(group), server)
}

// Of are the groups that a server holds, sorted.
func (o Assignment) Of(server string) []string {
	var groups []string
	for g, s := range o.Holder {
		if s == server {
			groups = append(groups, g)
		}
	}
	slices.Sort(groups)
	return groups
}

// Assign gives each claimed group to one server. Only those may have it whose
// specs name it most closely, whether or not they serve it. Of these the one
// that held it so far keeps it, as long as it claims it; else the highest
// priority gets it, then the earliest creation, then the first name. Assign
// depends on nothing else, so a group moves only when its holder lets go, or an
// operator names it for another.
func Assign(claims []Claim, held map[string]string) Assignment {
	claims = slices.Clone(claims)
	slices.SortFunc(claims, func(a, b Claim) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Created.Compare(b.Created), cmp.Compare(a.Server, b.Server))
	})
	o := Assignment{Holder: map[string]string{}, Refused: map[string][]Refusal{}, named: namingsOf(claims)}
	for _, c := range claims {
		for _, g := range c.Groups {
			if held[g] == c.Server && o.MayHold(c.Server, g) {
				o.Holder[g] = c.Server
			}
		}
	}
	for _, c := range claims {
		for _, g := range c.Groups {
			rightful := o.named.rightful(g)
			switch holder, taken := o.Holder[g]; {
			case !slices.Contains(rightful, c.Server):
				o.Refused[c.Server] = append(o.Refused[c.Server], Refusal{g, rightful[0], true})
			case !taken:
				o.Holder[g] = c.Server
			case holder != c.Server:
				o.Refused[c.Server] = append(o.Refused[c.Server], Refusal{Group: g, Server: holder})
			}
		}
	}
	for _, r := range o.Refused {
		slices.SortFunc(r, func(a, b Refusal) int { return cmp.Compare(a.Group, b.Group) })
	}
	return o
}

// Claims are the groups that a server claims: of those that it offers, the ones
// that its spec names. A server that was never reached (offered is nil) claims
// the groups that its spec names by their whole name, so that a caller hears
// that the server is down rather than that there is no such group.
func Claims(named, offered []string) []string {
	claims := map[string]bool{}
	for _, g := range offered {
		if Names(named, g) {
			claims[g] = true
		}
	}
	if offered == nil {
		// Never reached: see above.
		for _, g := range named {
			if !strings.HasPrefix(g, AnyGroup) {
				claims[g] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(claims))
}

// Missing are the groups that a spec names and the server does not offer.
func Missing(named, offered []string) []string {
	var missing []string
	for _, g := range named {
		if !strings.HasPrefix(g, AnyGroup) && !slices.Contains(offered, g) {
			missing = append(missing, g)
		}
	}
	slices.Sort(missing)
	return missing
}

// BuiltIn says whether a group is Kubernetes' own: the core group, those
// without a domain, such as apps, and those that kube-apiserver serves below
// k8s.io. They come first in discovery.
func BuiltIn(group string) bool {
	if !strings.Contains(group, ".") {
		return true
	}
	switch group {
	case "admissionregistration.k8s.io", "apidiscovery.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io",
		"authentication.k8s.io", "authorization.k8s.io", "certificates.k8s.io", "coordination.k8s.io",
		"discovery.k8s.io", "events.k8s.io", "flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io",
		"networking.k8s.io", "node.k8s.io", "rbac.authorization.k8s.io", "resource.k8s.io",
		"scheduling.k8s.io", "storage.k8s.io", "storagemigration.k8s.io":
		return true
	}
	return false
}

// Title is a group as people read it.
func Title(group string) string {
	if group == "" {
		return "the core group"
	}
	return fmt.Sprintf("group %q", group)
}
