package access

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/plan"
)

// KeyOf returns the namespace and name of an object.
func KeyOf(obj plan.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// Labelled returns the Service that a label of the object names; empty if the object
// lacks the label.
func Labelled(obj plan.Object, label string) types.NamespacedName {
	if name := obj.GetLabels()[label]; name != "" {
		return types.NamespacedName{Namespace: obj.GetNamespace(), Name: name}
	}
	return types.NamespacedName{}
}

// ServiceOf returns the Service that a reference names.
func ServiceOf(s v1alpha1.ServiceReference) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
}

// APIService returns the name of the Service of the API server. Each cluster has its
// own, so it is neither published nor replicated.
func APIService() types.NamespacedName {
	return types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}
}
