// Package ownership gives each API group to one of the servers that claim it. It never asks
// a server anything, and remembers nothing: its caller passes in the last holders.
package ownership

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Claim is what one server claims.
type Claim struct {
	// Server is the server's name.
	Server string
	// Named are the groups of the server's spec.
	Named []string
	// Groups are the groups that the server claims; see Claims. Invariant: Named
	// names each.
	Groups []string
	// Priority decides which server gets a group that no server holds: the highest.
	Priority int32
	// Created decides between equal priorities: the earliest. After that the name does.
	Created time.Time
}

// Assignment says which server holds which group. It does not change once it is made.
type Assignment struct {
	// Holder is the holder of each group.
	Holder map[string]string
	// Refused are, by server, the groups that the server claims and does not get.
	Refused map[string][]Refusal

	named namings
}

// Refusal is a group that a server claims and does not get.
type Refusal struct {
	Group string
	// Server holds the group, or names it more closely in its spec.
	Server string
	// Named: Server's spec names the group more closely, whether or not Server serves
	// the group now.
	Named bool
}

// MayHold says whether a server may hold a group: its spec names the group, and no other
// server's spec does so more closely.
func (o Assignment) MayHold(server, group string) bool {
	return slices.Contains(o.named.rightful(group), server)
}

// Of returns the groups that a server holds, sorted.
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

// Assign gives each claimed group to one server. Only the servers whose specs name the group
// most closely may have it, whether or not they serve it. Of these, the last holder keeps
// the group as long as it claims it. Otherwise the server with the highest priority gets it,
// then the earliest created, then the first by name. Assign depends on nothing else, so a
// group moves only if its holder no longer claims it, or an operator changes a spec.
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

// Claims returns the groups that a server claims: those that it offers and its spec names. A
// server that was never reached (offered is nil) claims the groups that its spec names by
// their whole names, so that a caller learns that the server is down, and not that there is
// no such group.
func Claims(named, offered []string) []string {
	claims := map[string]bool{}
	for _, g := range offered {
		if Names(named, g) {
			claims[g] = true
		}
	}
	if offered == nil {
		// The server was never reached.
		for _, g := range named {
			if !strings.HasPrefix(g, AnyGroup) {
				claims[g] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(claims))
}

// Missing returns the groups that a spec names and the server does not offer.
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

// BuiltIn says whether a group is Kubernetes' own: the core group, groups without a domain,
// such as apps, and the groups below k8s.io that kube-apiserver serves. They come first in
// discovery.
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

// Title returns a group's name for messages.
func Title(group string) string {
	if group == "" {
		return "the core group"
	}
	return fmt.Sprintf("group %q", group)
}
