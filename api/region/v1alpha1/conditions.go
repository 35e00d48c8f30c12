package v1alpha1

// Types of conditions.
const (
	// Ready: it can be used.
	ConditionReady = "Ready"
	// Reachable: the service cluster's API answers.
	ConditionReachable = "Reachable"
	// Synced: the service cluster has what an instance of a catalog's kind says. It stands
	// among the conditions that the service cluster itself gives the instance.
	ConditionSynced = GroupName + "/Synced"
)

// Labels and annotations.
const (
	// LabelServiceCluster is on a Secret the name of the one service cluster whose kubeconfig
	// it has.
	LabelServiceCluster = GroupName + "/service-cluster"
	// LabelAccount is on a namespace, and on what is in it, the account that an agent made it
	// for.
	LabelAccount = GroupName + "/account"
	// AnnotationOperation is the ID of the operation that created the name that an agent made
	// an object for. An agent changes and removes only what has this ID: a later owner of the
	// same name has another.
	AnnotationOperation = GroupName + "/operation"
	// AnnotationInstance is on an instance on a service cluster the UID of the tenant's instance
	// that it was made for.
	AnnotationInstance = GroupName + "/instance"
	// AnnotationEntry is on a definition that an agent made the entry that it was made for,
	// NAMESPACE/NAME.
	AnnotationEntry = GroupName + "/entry"
	// Finalizer is on what an agent made from a Claim, until the agent has removed all that
	// followed from it.
	Finalizer = GroupName + "/agent"
)
