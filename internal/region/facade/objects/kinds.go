package objects

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/xbernetes/xbernetes/api/region/client"
	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
)

// The annotations of objects that are served here.
const (
	// annotationOperation has the ID of the operation that has created the name. In a
	// create, it is an ID to ask for again.
	annotationOperation = v1alpha1.GroupName + "/operation"
	annotationState     = v1alpha1.GroupName + "/state"   // Deleting; else it is not there
	annotationProblem   = v1alpha1.GroupName + "/problem" // why the spec cannot be read
)

// object is an object of one of the kinds.
type object interface {
	runtime.Object
	metav1.Object
}

// wanted is what a create asks for.
type wanted struct {
	name   string // as the library has it
	region string // the home
	spec   client.Spec
}

// kind is how one kind of name is served as objects.
type kind struct {
	kind               client.Kind
	resource, singular string
	object             func() runtime.Object
	list               func() runtime.Object
	// wants reads the object of a create.
	wants func(runtime.Object) (wanted, error)
	// of makes the object of a name, without its metadata.
	of func(client.Owned) object
	// columns are what a table shows between name and state, and cells their values.
	columns []string
	cells   func(object) []any
}

func kinds() []kind {
	return []kind{accounts(), serviceClusters(), assignments()}
}

func accounts() kind {
	return kind{
		kind: client.Account, resource: "accounts", singular: "account",
		object: func() runtime.Object { return &v1alpha1.Account{} },
		list:   func() runtime.Object { return &v1alpha1.AccountList{} },
		wants: func(o runtime.Object) (wanted, error) {
			a := o.(*v1alpha1.Account)
			return wanted{a.Name, a.Spec.Region, client.Spec{Account: &a.Spec}}, nil
		},
		of: func(o client.Owned) object {
			a := &v1alpha1.Account{}
			if o.Spec.Account != nil {
				a.Spec = *o.Spec.Account
			}
			a.Spec.Region = o.Region
			return a
		},
		columns: []string{"Roles", "Region"},
		cells: func(o object) []any {
			var roles []string
			spec := o.(*v1alpha1.Account).Spec
			for _, r := range spec.Roles {
				roles = append(roles, string(r))
			}
			return []any{strings.Join(roles, ","), spec.Region}
		},
	}
}

func serviceClusters() kind {
	return kind{
		kind: client.ServiceCluster, resource: "serviceclusters", singular: "servicecluster",
		object: func() runtime.Object { return &v1alpha1.ServiceCluster{} },
		list:   func() runtime.Object { return &v1alpha1.ServiceClusterList{} },
		wants: func(o runtime.Object) (wanted, error) {
			c := o.(*v1alpha1.ServiceCluster)
			return wanted{c.Name, c.Spec.Region, client.Spec{ServiceCluster: &c.Spec}}, nil
		},
		of: func(o client.Owned) object {
			c := &v1alpha1.ServiceCluster{}
			if o.Spec.ServiceCluster != nil {
				c.Spec = *o.Spec.ServiceCluster
			}
			c.Spec.Region = o.Region
			return c
		},
		columns: []string{"Region"},
		cells:   func(o object) []any { return []any{o.(*v1alpha1.ServiceCluster).Spec.Region} },
	}
}

func assignments() kind {
	return kind{
		kind: client.Assignment, resource: "serviceclusterassignments", singular: "serviceclusterassignment",
		object: func() runtime.Object { return &v1alpha1.ServiceClusterAssignment{} },
		list:   func() runtime.Object { return &v1alpha1.ServiceClusterAssignmentList{} },
		wants: func(o runtime.Object) (wanted, error) {
			a := o.(*v1alpha1.ServiceClusterAssignment)
			if want := a.Spec.ServiceCluster + "." + a.Spec.Account; a.Name != want {
				return wanted{}, fmt.Errorf("its name must be SERVICECLUSTER.ACCOUNT, %q, and is %q", want, a.Name)
			}
			return wanted{a.Spec.ServiceCluster + "/" + a.Spec.Account, a.Spec.Region, client.Spec{}}, nil
		},
		of: func(o client.Owned) object {
			a := &v1alpha1.ServiceClusterAssignment{}
			a.Spec.ServiceCluster, a.Spec.Account, _ = strings.Cut(o.Name, "/")
			a.Spec.Region = o.Region
			return a
		},
		columns: []string{"Service Cluster", "Account", "Region"},
		cells: func(o object) []any {
			spec := o.(*v1alpha1.ServiceClusterAssignment).Spec
			return []any{spec.ServiceCluster, spec.Account, spec.Region}
		},
	}
}

// owned is the name of an object as the library has it.
func (k kind) owned(name string) string {
	if k.kind == client.Assignment {
		return strings.Replace(name, ".", "/", 1)
	}
	return name
}

// make is the object of a name. It is the same whichever region the name was read from.
func (k kind) make(o client.Owned) object {
	made := k.of(o)
	made.SetName(strings.Replace(o.Name, "/", ".", 1))
	if o.Operation != "" { // not so in a dry run
		made.SetUID(uidOf(o.Operation))
		annotations := map[string]string{annotationOperation: o.Operation}
		if o.Deleting {
			annotations[annotationState] = "Deleting"
		}
		if o.Problem != "" {
			annotations[annotationProblem] = o.Problem
		}
		made.SetAnnotations(annotations)
		made.SetResourceVersion(versionOf(o).String())
	}
	return made
}

// uidOf is the UID of what an operation has created.
func uidOf(operation string) types.UID {
	h := sha256.Sum256([]byte(v1alpha1.GroupName + "/" + operation))
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16]))
}

// version stands for a state of objects: the sum of their versions, so that the version after
// a change follows from the change alone. It says whether two states are the same, and not
// which was first.
type version uint64

// versionOf is the version of one object. What an operation has created never changes, but
// that it may be about to be deleted.
func versionOf(o client.Owned) version {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %s %s %v %s", o.Kind, o.Name, o.Operation, o.Deleting, o.Problem)
	return version(h.Sum64())
}

func versionOfAll(all []client.Owned) (sum version) {
	for _, o := range all {
		sum += versionOf(o)
	}
	return sum
}

// String is a resourceVersion: a decimal number that is not 0.
func (v version) String() string { return strconv.FormatUint(cmp.Or(uint64(v)>>1, 1), 10) }
