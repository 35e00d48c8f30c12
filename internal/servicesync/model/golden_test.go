package model_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/model"
)

// TestTranscripts runs testdata/*: what clusters write, step by step.
// Run it with -rewrite to accept what they write now.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var w *world
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "clusters" {
				n := 2
				d.MaybeScanArgs(t, "n", &n)
				w = newWorld(t, 1, n)
				return ""
			}
			return w.command(t, d)
		})
	})
}

func (w *world) command(t *testing.T, d *datadriven.TestData) string {
	var c *cluster
	if d.HasArg("in") {
		var id string
		d.ScanArgs(t, "in", &id)
		c = w.clusters[id[0]-'a']
	}
	var of string
	d.MaybeScanArgs(t, "of", &of)
	switch d.Cmd {
	case "apply":
		c.applyYAML(t, d.Input)
	case "delete":
		for k, o := range maps.Clone(c.api.objects) {
			if k == of {
				c.api.remove(o)
			}
		}
	case "pods":
		var n int
		d.ScanArgs(t, "n", &n)
		for range n {
			c.addPod("cart", !d.HasArg("unready"), false)
		}
	case "ready":
		for _, p := range c.pods {
			p.ready = true
		}
	case "kill":
		c.pods = nil
	case "mode":
		var m string
		d.MaybeScanArgs(t, "is", &m)
		c.mode(m)
	case "cut":
		c.cut[model.ClusterID(of)] = true
	case "heal":
		delete(c.cut, model.ClusterID(of))
	case "restart":
		c.start()
	case "wait":
		var seconds int
		d.ScanArgs(t, "seconds", &seconds)
		w.now = w.now.Add(time.Duration(seconds) * time.Second)
	case "settle":
		return w.since()
	case "show":
		return c.show(of)
	case "decide":
		return c.decision()
	default:
		t.Fatalf("no such command: %s", d.Cmd)
	}
	return ""
}

// since settles, and tells what was written meanwhile.
func (w *world) since() string {
	w.trace = nil
	w.settle()
	var out []string
	for _, line := range w.trace {
		_, line, _ = strings.Cut(line, " ")
		line = strings.ReplaceAll(line, v1alpha1.GroupName+"/", "")
		out = append(out, strings.TrimRight(line, " "))
	}
	if w.failed != "" {
		out = append(out, w.failed)
	}
	return strings.Join(out, "\n")
}

// decision tells what a decision says beside its writes.
func (c *cluster) decision() string {
	c.own.catchUp()
	r := model.Decide(c.config(), c.input())
	var b strings.Builder
	for _, e := range r.Events {
		fmt.Fprintf(&b, "%s %s: %s\n", e.Type, e.Reason, e.Note)
	}
	f := r.Facts
	fmt.Fprintf(&b, "role %s, mode %q, asked %t, phase %q, kept %t\nready", f.Role, f.Mode, f.Asked, f.Phase, f.Kept)
	for _, id := range slices.Sorted(maps.Keys(f.Ready)) {
		fmt.Fprintf(&b, " %s:%d", id, f.Ready[id])
	}
	for _, write := range r.Writes {
		fmt.Fprintf(&b, "\n%s %s", write.Verb, keyOf(write.Object))
	}
	return b.String()
}

// show prints objects of a kind, without what the server fills in.
func (c *cluster) show(kind string) string {
	var docs []string
	for _, k := range slices.Sorted(maps.Keys(c.api.objects)) {
		if !strings.HasPrefix(k, "*v1."+kind+" ") && !strings.HasPrefix(k, "*v1beta1."+kind+" ") && !strings.HasPrefix(k, kind+" ") {
			continue
		}
		o := c.api.objects[k].DeepCopyObject().(model.Object)
		o.SetResourceVersion("")
		o.SetUID("")
		o.SetNamespace("")
		o.SetCreationTimestamp(metav1.Time{})
		for i, owner := range o.GetOwnerReferences() {
			owner.UID = "its"
			o.GetOwnerReferences()[i] = owner
		}
		doc, err := yaml.Marshal(o)
		if err != nil {
			panic(err)
		}
		docs = append(docs, strings.ReplaceAll(string(doc), "status:\n  loadBalancer: {}\n", ""))
	}
	return strings.Join(docs, "---\n")
}

// applyYAML is somebody's kubectl apply.
func (c *cluster) applyYAML(t *testing.T, text string) {
	t.Helper()
	for doc := range strings.SplitSeq(text, "\n===\n") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
			t.Fatal(err)
		}
		var o model.Object
		switch kind.Kind {
		case "Service":
			o = &corev1.Service{}
		case "EndpointSlice":
			o = &discoveryv1.EndpointSlice{}
		case "Endpoints":
			o = &corev1.Endpoints{} //nolint:staticcheck // what Kubernetes still writes
		case "ServiceExport":
			o = &mcs.ServiceExport{}
		case "PublishedService":
			o = &v1alpha1.PublishedService{}
		default:
			t.Fatalf("no such kind: %s", kind.Kind)
		}
		if err := yaml.UnmarshalStrict([]byte(doc), o); err != nil {
			t.Fatal(err)
		}
		o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		o.SetNamespace(key.Namespace)
		if old := c.api.objects[keyOf(o)]; old != nil {
			o.SetUID(old.GetUID())
			c.api.put(o, false)
			continue
		}
		o.SetCreationTimestamp(metav1.Time{Time: c.w.now})
		c.api.put(o, true)
	}
}
