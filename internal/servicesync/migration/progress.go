package migration

import (
	"fmt"
	"slices"
	"strings"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
)

// Progress is how far a migration has come.
type Progress struct {
	Phase v1alpha1.Phase // of the handover; "" if this cluster hands nothing over
	Role  v1alpha1.Role  // that the Service has at this cluster
	Waits string         // what for, if the controller has said so
	Done  bool
}

// String draws how many phases are over, and names the present one: "[##..] joining".
func (p Progress) String() string {
	phases := []v1alpha1.Phase{v1alpha1.PhasePreparing, v1alpha1.PhaseJoining, v1alpha1.PhaseCommitted, v1alpha1.PhaseDone}
	over := slices.Index(phases, p.Phase) + 1
	if p.Done {
		over = len(phases)
	}
	return fmt.Sprintf("[%s%s] %-9s", strings.Repeat("#", over), strings.Repeat(".", len(phases)-over), p.phase())
}

// phase names the present phase, or what is known before there is one.
func (p Progress) phase() string {
	switch {
	case p.Done:
		return "done"
	case p.Phase != "":
		return strings.ToLower(string(p.Phase))
	case p.Role != "":
		return string(p.Role)
	default:
		return "asked"
	}
}
