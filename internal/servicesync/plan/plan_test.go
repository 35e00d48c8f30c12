package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// TestNotes keeps the order of the steps, and one warning for each key.
func TestNotes(t *testing.T) {
	var first, second Notes
	first.Warn("A", "a")
	first.WarnOnce("B", "x", "b of x")
	first.WarnOnce("B", "x", "again")
	second.WarnOnce("B", "x", "and again")
	second.WarnOnce("B", "y", "b of y")
	second.Inform("C", "c")
	first.Add(second)
	want := []Event{
		{corev1.EventTypeWarning, "A", "a"}, {corev1.EventTypeWarning, "B", "b of x"},
		{corev1.EventTypeWarning, "B", "b of y"}, {corev1.EventTypeNormal, "C", "c"},
	}
	if diff := cmp.Diff(want, first.Events()); diff != "" {
		t.Error(diff)
	}
}

// TestSame compares what is stored: absent and empty are equal.
func TestSame(t *testing.T) {
	a, b := &corev1.Service{}, &corev1.Service{}
	b.Labels = map[string]string{}
	if !Same(a, b) {
		t.Error("no labels, and an empty map of them")
	}
	if b.Labels["x"] = "y"; Same(a, b) {
		t.Error("a label")
	}
}
