package discovery

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
	// Groups are those that it claims, as Claims gives them.
	Groups []string
	// Priority settles who gets a group that nobody holds: the higher.
	Priority int32
	// Created settles it among equals: the earlier. The name settles the rest.
	Created time.Time
}

// Ownership says who holds what.
type Ownership struct {
	// Holder is the server of each group.
	Holder map[string]string
	// Refused are, by server, the groups that it claims and another holds.
	Refused map[string][]Refusal
}

// Refusal is a group that a server claims and another holds.
type Refusal struct{ Group, Holder string }

// Of are the groups that a server holds, sorted.
func (o Ownership) Of(server string) []string {
	var groups []string
	for g, s := range o.Holder {
		if s == server {
			groups = append(groups, g)
		}
	}
	slices.Sort(groups)
	return groups
}

// Assign gives each claimed group to one server: to the one that held it so
// far, as long as it claims it; else to the highest priority, the earliest
// creation, the first name. It depends on nothing else, so a group moves only
// when its holder lets go.
func Assign(claims []Claim, held map[string]string) Ownership {
	claims = slices.Clone(claims)
	slices.SortFunc(claims, func(a, b Claim) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Created.Compare(b.Created), cmp.Compare(a.Server, b.Server))
	})
	o := Ownership{Holder: map[string]string{}, Refused: map[string][]Refusal{}}
	for _, c := range claims {
		for _, g := range c.Groups {
			if held[g] == c.Server {
				o.Holder[g] = c.Server
			}
		}
	}
	for _, c := range claims {
		for _, g := range c.Groups {
			switch holder, taken := o.Holder[g]; {
			case !taken:
				o.Holder[g] = c.Server
			case holder != c.Server:
				o.Refused[c.Server] = append(o.Refused[c.Server], Refusal{g, holder})
			}
		}
	}
	for _, r := range o.Refused {
		slices.SortFunc(r, func(a, b Refusal) int { return cmp.Compare(a.Group, b.Group) })
	}
	return o
}

// AnyGroup in a spec's groups stands for whatever the server serves.
const AnyGroup = "*"

// Claims are the groups that a server claims: of those that it offers, the
// ones that its spec names, or without a word there all but Kubernetes' own. A
// server that was never reached (offered is nil) claims what its spec names,
// so that a caller hears that it is down rather than that there is no such
// group.
func Claims(named, offered []string) []string {
	claims := map[string]bool{}
	for _, g := range offered {
		if slices.Contains(named, g) || slices.Contains(named, AnyGroup) || len(named) == 0 && !BuiltIn(g) {
			claims[g] = true
		}
	}
	if offered == nil {
		// Never reached: see above.
		for _, g := range named {
			if g != AnyGroup {
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
		if g != AnyGroup && !slices.Contains(offered, g) {
			missing = append(missing, g)
		}
	}
	slices.Sort(missing)
	return missing
}

// BuiltIn says whether a group is Kubernetes' own: the core group, those
// without a domain, such as apps, and those that kube-apiserver serves below
// k8s.io. No server gets one without naming it.
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
