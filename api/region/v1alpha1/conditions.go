package v1alpha1

// Types of conditions.
const (
	// Ready: it can be used.
	ConditionReady = "Ready"
	// Reachable: the service cluster's API answers.
	ConditionReachable = "Reachable"
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
	// Finalizer is on what an agent made from a Claim, until the agent has removed all that
	// followed from it.
	Finalizer = GroupName + "/agent"
)
