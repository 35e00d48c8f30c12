package kube

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/region/stored"
)

var (
	key    = stored.Key{Kind: "Account", Name: "team/a"}
	stake  = stored.Stake{Op: stored.OpID{Window: 3, Unique: "a"}, Home: "eu", Attempt: 2, Epoch: 5}
	bodies = []stored.Body{
		stored.Claim{Key: key, Phase: stored.Intent, Owner: stake, Payload: "{}"},
		stored.Claim{Key: key, Phase: stored.Tomb, Owner: stake, Deleter: stake, WasReal: true},
		stored.Operation{ID: stake.Op, Verb: stored.Create, Key: key, Home: "eu", Payload: "{}", State: stored.Pending, Attempt: 1},
		stored.Operation{ID: stake.Op, Verb: stored.Delete, Key: key, Home: "eu", Target: stored.OpID{Unique: "b"}, TargetHome: "us",
			State: stored.Committed, Attempt: 1, Epoch: 5, Members: []stored.Region{"eu", "us"}},
		stored.Membership{Epoch: 5, Horizon: 3, Members: []stored.Member{{Region: "eu", Active: true, Since: 1}, {Region: "us", Since: 5}}},
	}
)

func TestBodiesAreReadAsTheyWereWritten(t *testing.T) {
	for _, b := range bodies {
		got, err := decode("eu", encode(b, "7"))
		if err != nil {
			t.Errorf("%v: %v", b, err)
		}
		want := stored.Object{Place: "eu", Version: "7", Body: b}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%T (-want +got):\n%s", b, diff)
		}
	}
}

func TestObjectsThatNoClientWritesAreRefused(t *testing.T) {
	claim := func(change func(*v1alpha1.Claim)) runtime.Object {
		c := encode(bodies[1], "7").(*v1alpha1.Claim)
		change(c)
		return c
	}
	for name, o := range map[string]runtime.Object{
		"a phase of a newer version": claim(func(c *v1alpha1.Claim) { c.Spec.Phase = "Lent" }),
		"a tomb without a deleter":   claim(func(c *v1alpha1.Claim) { c.Spec.Deleter = nil }),
		"a held claim with one":      claim(func(c *v1alpha1.Claim) { c.Spec.Phase = "Held" }),
		"another key's name":         claim(func(c *v1alpha1.Claim) { c.Name = "k00" }),
		"no ID of an operation":      claim(func(c *v1alpha1.Claim) { c.Spec.Owner.Operation = "03-a" }),
		"a negative epoch":           claim(func(c *v1alpha1.Claim) { c.Spec.Owner.Epoch = -1 }),
		"no version":                 claim(func(c *v1alpha1.Claim) { c.ResourceVersion = "" }),
	} {
		if got, err := decode("eu", o); err == nil {
			t.Errorf("%s is read as %v", name, got.Body)
		}
	}
}

// FuzzDecode: whatever a region has stored is refused, or written back as it was read.
func FuzzDecode(f *testing.F) {
	for _, b := range bodies {
		text, err := json.Marshal(encode(b, "7"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b.Kind()), text)
	}
	f.Fuzz(func(t *testing.T, kind string, text []byte) {
		into, _, err := objects(stored.Request{Kind: stored.Kind(kind)})
		if err != nil || json.Unmarshal(text, into) != nil {
			return
		}
		read, err := decode("eu", into)
		if err != nil {
			return
		}
		again, err := decode("eu", encode(read.Body, read.Version))
		if diff := cmp.Diff(read, again); err != nil || diff != "" {
			t.Errorf("%v (-read +read again):\n%s", err, diff)
		}
	})
}
