package v1alpha1

// Annotations that people set on a Service.
const (
	// AnnotationMode asks for a mode; AnnotationModeCompat is the same under the
	// name that the k8s-endpoints-sync-controller knows. Where both are set,
	// AnnotationMode counts.
	AnnotationMode       = GroupName + "/mode"
	AnnotationModeCompat = "vmware.com/syndicate-mode"
	// AnnotationTo names the cluster that a receiver hands its traffic to.
	// Needed only where more than one could be meant.
	AnnotationTo = GroupName + "/to"
	// AnnotationMinReady is how many endpoints of those that take over must be
	// ready, as a number or as a percentage of those that are given up.
	AnnotationMinReady = GroupName + "/min-ready"
	// AnnotationStableFor is for how long they must have been, as a duration.
	AnnotationStableFor = GroupName + "/stable-for"
	// AnnotationPrefer, with the value PreferLocal, has endpoints of other
	// clusters used only where no endpoint of the own cluster is ready.
	AnnotationPrefer = GroupName + "/prefer"
	// AnnotationImportType, with the value ClusterIP, has replicas of a NodePort
	// or LoadBalancer Service be plain ClusterIP ones.
	AnnotationImportType = GroupName + "/import-type"
	// AnnotationEndpoints, with the value "true", has Endpoints written beside
	// EndpointSlices for a replica.
	AnnotationEndpoints = GroupName + "/endpoints"

	// PreferLocal is the one value of AnnotationPrefer.
	PreferLocal = "local"
)

// Annotations that a controller keeps on Services and EndpointSlices.
const (
	// AnnotationRole is what a Service does now; see Role. Where it is missing, a
	// Service that was created here is a source, and a replica a receiver.
	AnnotationRole = GroupName + "/role"
	// AnnotationAnswered is the mode that was asked for when the role was taken
	// on. As long as it equals the one asked for, nothing is asked.
	AnnotationAnswered = GroupName + "/answered"
	// AnnotationSelector holds, as JSON, the selector that a role took away. It
	// is written by the same update that empties the selector.
	AnnotationSelector = GroupName + "/selector"
	// AnnotationAdopted says which cluster a selector was taken over from, by the
	// same update that sets it.
	AnnotationAdopted = GroupName + "/adopted"
	// AnnotationCarried lists the labels and annotations of a replica that came
	// from the Service that it follows.
	AnnotationCarried = GroupName + "/carried"
	// AnnotationStale marks slices of clusters of which nothing is heard: see
	// StaleKept and StaleExpired. In a slice of which that is so of some clusters
	// only, it is a list of CLUSTER=MARK.
	AnnotationStale = GroupName + "/stale"
	// AnnotationFormat is on the definitions of this group's types: the newest format
	// that they have the fields of.
	AnnotationFormat = GroupName + "/format"
	// AnnotationFrom lists the published slices that an EndpointSlice was made from,
	// as CLUSTER/NAME=ENDPOINTS, in the order of its endpoints.
	AnnotationFrom = GroupName + "/from"

	// StaleKept says that endpoints stand as they were last heard of.
	StaleKept = "kept"
	// StaleExpired says that the lease ran out: those that were ready are given
	// as terminating but serving, so that they are used only if nothing else is.
	StaleExpired = "expired"
)

// Labels of what a controller creates.
const (
	// LabelReplica is on a Service that was created for another cluster's. Its
	// value is the cluster that it follows.
	LabelReplica = GroupName + "/replica-of"
	// LabelImport is on a ServiceImport, and on the Service that gives it its
	// address. Its value is the name of the Service that is exported.
	LabelImport = GroupName + "/import-of"
	// LabelCluster is the cluster that a publication is of, or all endpoints of a
	// slice are of.
	LabelCluster = GroupName + "/cluster"
	// LabelService is the name of the Service that a publication is of.
	LabelService = GroupName + "/service"
	// LabelNamespace is the namespace of the Service that a publication is of.
	LabelNamespace = GroupName + "/namespace"
	// ManagedBy is the value of the managed-by label of EndpointSlices.
	ManagedBy = "servicesync.xbernetes.io"
)
