package ownership

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestOwnership tells stories of servers that come, go and change, and who
// holds which group after each step.
func TestOwnership(t *testing.T) {
	datadriven.Walk(t, "testdata/ownership", func(t *testing.T, path string) {
		type server struct {
			claim          Claim
			named, offered []string
			reached        bool
		}
		servers := map[string]*server{}
		held := map[string]string{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "server":
				s := &server{claim: Claim{Server: d.CmdArgs[0].Key}, reached: true}
				for _, a := range d.CmdArgs[1:] {
					groups := func() []string {
						g := slices.Clone(a.Vals)
						for i := range g {
							g[i] = strings.Replace(g[i], "core", "", 1)
						}
						return g
					}
					switch a.Key {
					case "offers":
						s.offered = groups()
					case "groups":
						s.named = groups()
					case "down":
						s.reached = false
					case "priority":
						n, _ := strconv.Atoi(a.Vals[0])
						s.claim.Priority = int32(n)
					case "created":
						n, _ := strconv.Atoi(a.Vals[0])
						s.claim.Created = time.Unix(int64(n), 0)
					default:
						d.Fatalf(t, "no such argument: %s", a.Key)
					}
				}
				if !s.reached {
					s.offered = nil
				} else if s.offered == nil {
					s.offered = []string{}
				}
				servers[s.claim.Server] = s
			case "remove":
				delete(servers, d.CmdArgs[0].Key)
			case "restart":
				held = map[string]string{}
			default:
				d.Fatalf(t, "no such command: %s", d.Cmd)
			}
			var claims []Claim
			for _, s := range servers {
				s.claim.Named, s.claim.Groups = s.named, Claims(s.named, s.offered)
				claims = append(claims, s.claim)
			}
			o := Assign(claims, held)
			held = o.Holder
			var out strings.Builder
			for _, name := range slices.Sorted(maps.Keys(servers)) {
				fmt.Fprintf(&out, "%s:", name)
				for _, g := range o.Of(name) {
					fmt.Fprintf(&out, " %s", strings.TrimPrefix(Title(g), "group "))
				}
				out.WriteByte('\n')
				for _, r := range o.Refused[name] {
					how := "held by"
					if r.Named {
						how = "named for"
					}
					fmt.Fprintf(&out, "  refused %s: %s %s\n", Title(r.Group), how, r.Server)
				}
			}
			return out.String()
		})
	})
}

// TestNothingFlaps: whatever comes and goes, assigning again changes nothing,
// the order of claims does not matter, each claimed group has one holder that
// claims it, and a holder that still claims a group keeps it.
func TestNothingFlaps(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	held := map[string]string{}
	for step := range 2000 {
		var claims []Claim
		claimed := map[string][]string{}
		for s := range 1 + rng.IntN(5) {
			c := Claim{Server: string(rune('a' + s)), Priority: int32(rng.IntN(2)), Created: time.Unix(int64(rng.IntN(2)), 0)}
			for g := range 4 {
				if rng.IntN(2) == 0 {
					name := fmt.Sprintf("g%d.example.com", g)
					c.Groups = append(c.Groups, name)
					claimed[name] = append(claimed[name], c.Server)
				}
			}
			c.Named = c.Groups
			claims = append(claims, c)
		}
		o := Assign(claims, held)
		for g, holder := range o.Holder {
			if !slices.Contains(claimed[g], holder) {
				t.Fatalf("step %d: %s is held by %s, which does not claim it", step, g, holder)
			}
		}
		for g, by := range claimed {
			if o.Holder[g] == "" {
				t.Fatalf("step %d: nobody holds %s", step, g)
			}
			if slices.Contains(by, held[g]) && o.Holder[g] != held[g] {
				t.Fatalf("step %d: %s moved from %s to %s", step, g, held[g], o.Holder[g])
			}
		}
		rng.Shuffle(len(claims), func(i, j int) { claims[i], claims[j] = claims[j], claims[i] })
		if diff := cmp.Diff(o, Assign(claims, o.Holder), cmpopts.IgnoreUnexported(Assignment{})); diff != "" {
			t.Fatalf("step %d: assigning again changes (-first +second):\n%s", step, diff)
		}
		held = o.Holder
	}
}

// TestNobodySquats: whatever servers come, go, serve and are named for, and
// whoever held a group before, a group is held only by a server whose spec names
// it, a reserved one never by "*", and never while it is named for another server
// more closely.
func TestNobodySquats(t *testing.T) {
	groups := []string{"", "apps", "metrics.k8s.io", "a.kubernetes.io", "aggregation.xbernetes.io", "xbernetes.io", "a.vendor.com", "b.vendor.com", "x.a.vendor.com", "c.org"}
	entries := append([]string{"*", "*.io", "*.com", "*.k8s.io", "*.xbernetes.io", "*.vendor.com", "*.a.vendor.com", "*.net"}, groups...)
	own := []string{"k8s.io", "kubernetes.io", "xbernetes.io"}
	within := func(name string) bool {
		return slices.ContainsFunc(own, func(d string) bool { return name == d || strings.HasSuffix(name, "."+d) })
	}
	closeness := func(entry, group string) int {
		domain, wild := strings.CutPrefix(entry, "*.")
		reserved := !strings.Contains(group, ".") || within(group)
		switch {
		case entry == group:
			return 1000
		case wild && strings.HasSuffix(group, "."+domain) && (!reserved || within(domain)):
			return 1 + len(domain)
		case entry == "*" && !reserved:
			return 1
		}
		return 0
	}
	rng := rand.New(rand.NewPCG(3, 4))
	some := func(of []string, most int) []string {
		out := []string{}
		for range rng.IntN(most + 1) {
			out = append(out, of[rng.IntN(len(of))])
		}
		return out
	}
	held, holds := map[string]string{}, 0
	for step := range 20_000 {
		closest := map[string]map[string]int{}
		var claims []Claim
		for s := range 1 + rng.IntN(4) {
			name := string(rune('a' + s))
			c := Claim{Server: name, Named: some(entries, 4), Priority: int32(rng.IntN(3))}
			c.Groups = Claims(c.Named, some(groups, 6))
			claims = append(claims, c)
			for _, g := range groups {
				for _, entry := range c.Named {
					if closest[g] == nil {
						closest[g] = map[string]int{}
					}
					closest[g][name] = max(closest[g][name], closeness(entry, g))
				}
			}
		}
		o := Assign(claims, held)
		for g, holder := range o.Holder {
			holds++
			mine := closest[g][holder]
			if mine == 0 {
				t.Fatalf("step %d: %q is held by %s, whose spec does not name it: %+v", step, g, holder, claims)
			}
			for other, closer := range closest[g] {
				if closer > mine {
					t.Fatalf("step %d: %q is held by %s, and named more closely for %s: %+v", step, g, holder, other, claims)
				}
			}
		}
		held = o.Holder
		if rng.IntN(5) == 0 {
			for _, g := range groups { // what a memory may say
				held[g] = string(rune('a' + rng.IntN(4)))
			}
		}
	}
	if holds < 20_000 {
		t.Errorf("%d groups were held: the test tries nothing", holds)
	}
}
