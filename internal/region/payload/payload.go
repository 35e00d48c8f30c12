// Package payload turns the specs of names into the text that their claims carry, and back.
// It never reads or writes a store, and carries no secret.
package payload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
)

const (
	// MaxBytes is how long a payload can be. Each region has one in each claim.
	MaxBytes = 16 << 10
	// MaxSubjects is how many subjects an account can have.
	MaxSubjects = 64
	// maxName is how long the name of a subject can be.
	maxName = 253
)

// OfAccount is the payload of an account; empty if the spec says nothing. The groups of
// subjects are filled in, and the region is left out: claims have it elsewhere.
func OfAccount(spec v1alpha1.AccountSpec) (string, error) {
	spec = *spec.DeepCopy()
	spec.Region = ""
	for i := range spec.Subjects {
		if s := &spec.Subjects[i]; s.APIGroup == "" && s.Kind != rbacv1.ServiceAccountKind {
			s.APIGroup = rbacv1.GroupName
		}
	}
	if err := checkAccount(spec); err != nil {
		return "", err
	}
	return encode(spec)
}

// Account is the spec that a payload has.
func Account(text string) (spec v1alpha1.AccountSpec, err error) {
	if err := decode(text, &spec); err != nil {
		return v1alpha1.AccountSpec{}, err
	}
	if err := checkAccount(spec); err != nil {
		return v1alpha1.AccountSpec{}, err
	}
	return spec, nil
}

// OfServiceCluster is the payload of a service cluster; empty if the spec says nothing. The
// region is left out: claims have it elsewhere.
func OfServiceCluster(spec v1alpha1.ServiceClusterSpec) (string, error) {
	spec.Region = ""
	if err := checkServiceCluster(spec); err != nil {
		return "", err
	}
	return encode(spec)
}

// ServiceCluster is the spec that a payload has.
func ServiceCluster(text string) (spec v1alpha1.ServiceClusterSpec, err error) {
	if err := decode(text, &spec); err != nil {
		return v1alpha1.ServiceClusterSpec{}, err
	}
	if err := checkServiceCluster(spec); err != nil {
		return v1alpha1.ServiceClusterSpec{}, err
	}
	return spec, nil
}

func checkAccount(spec v1alpha1.AccountSpec) error {
	for i, role := range spec.Roles {
		if role != v1alpha1.Provider && role != v1alpha1.Tenant {
			return fmt.Errorf("the role %q is not known; want %s or %s", role, v1alpha1.Provider, v1alpha1.Tenant)
		}
		if slices.Contains(spec.Roles[:i], role) {
			return fmt.Errorf("the role %s is named twice", role)
		}
	}
	if len(spec.Subjects) > MaxSubjects {
		return fmt.Errorf("there are %d subjects, and %d can be", len(spec.Subjects), MaxSubjects)
	}
	for i, s := range spec.Subjects {
		if err := checkSubject(s); err != nil {
			return err
		}
		if slices.Contains(spec.Subjects[:i], s) {
			return fmt.Errorf("the subject %s %s is named twice", s.Kind, s.Name)
		}
	}
	return nil
}

// checkSubject refuses what the API would refuse in a RoleBinding.
func checkSubject(s rbacv1.Subject) error {
	wrong := func(why string) error { return fmt.Errorf("the subject %s %q: %s", s.Kind, s.Name, why) }
	if s.Name == "" || len(s.Name) > maxName {
		return wrong(fmt.Sprintf("its name must have 1 to %d bytes", maxName))
	}
	switch s.Kind {
	case rbacv1.UserKind, rbacv1.GroupKind:
		if s.APIGroup != rbacv1.GroupName || s.Namespace != "" {
			return wrong("it must be of the group " + rbacv1.GroupName + ", and of no namespace")
		}
	case rbacv1.ServiceAccountKind:
		if why := content.IsPathSegmentName(s.Name); len(why) > 0 || s.APIGroup != "" {
			return wrong("it is no name of a service account")
		}
		if why := validation.IsDNS1123Label(s.Namespace); len(why) > 0 {
			return wrong("its namespace: " + why[0])
		}
	default:
		return wrong("its kind must be User, Group or ServiceAccount")
	}
	return nil
}

func checkServiceCluster(spec v1alpha1.ServiceClusterSpec) error {
	s := spec.KubeconfigSecret
	if s == nil {
		return nil
	}
	if why := validation.IsDNS1123Label(s.Namespace); len(why) > 0 {
		return fmt.Errorf("the Secret's namespace %q: %s", s.Namespace, why[0])
	}
	if why := validation.IsDNS1123Subdomain(s.Name); len(why) > 0 {
		return fmt.Errorf("the Secret's name %q: %s", s.Name, why[0])
	}
	return nil
}

func encode(spec any) (string, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return "", err
	}
	if string(text) == "{}" {
		return "", nil
	}
	if len(text) > MaxBytes {
		return "", fmt.Errorf("the spec has %d bytes, and %d can be", len(text), MaxBytes)
	}
	return string(text), nil
}

// errNotRead hides what a parser quotes of a text that anybody may have written.
var errNotRead = errors.New("the payload of the claim is not what this version writes")

func decode(text string, into any) error {
	if text == "" {
		return nil
	}
	if len(text) > MaxBytes {
		return fmt.Errorf("the payload of the claim has %d bytes, and %d can be", len(text), MaxBytes)
	}
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	if d.Decode(into) != nil {
		return errNotRead
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errNotRead
	}
	return nil
}
