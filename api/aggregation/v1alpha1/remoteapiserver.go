package v1alpha1

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RemoteAPIServer registers one API server, which may be several endpoints,
// with every gateway that watches this object or reads it from its file.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ras,categories=xbernetes
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].reason`
// +kubebuilder:printcolumn:name="Unique",type=string,JSONPath=`.status.conditions[?(@.type=="GroupsUnique")].status`
// +kubebuilder:printcolumn:name="Conformant",type=string,JSONPath=`.status.conditions[?(@.type=="Conformant")].status`
// +kubebuilder:printcolumn:name="Identity",type=string,JSONPath=`.spec.identity.mode`,priority=1
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`,priority=1
// +kubebuilder:printcolumn:name="Latency",type=string,JSONPath=`.status.latency`
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.url`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RemoteAPIServer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says where the server is and how the gateway is to treat it.
	Spec RemoteAPIServerSpec `json:"spec"`
	// Status is what a gateway last saw of the server.
	// +optional
	Status RemoteAPIServerStatus `json:"status,omitempty"`
}

// RemoteAPIServerList is a list of them.
//
// +kubebuilder:object:root=true
type RemoteAPIServerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the servers.
	Items []RemoteAPIServer `json:"items"`
}

// RemoteAPIServerSpec says where a server is and how the gateway is to treat it.
//
// +kubebuilder:validation:XValidation:rule="has(self.url) || (has(self.endpoints) && size(self.endpoints) > 0)",message="give url, endpoints, or both"
type RemoteAPIServerSpec struct {
	// URL is the server's base URL, such as https://apis.example.com/prod: the
	// API is at URL/api and URL/apis. Its path is kept. No query, no fragment, no
	// user name.
	// +optional
	// +kubebuilder:validation:Pattern=`^https?://[^/?#@]+(/[^?#]*)?$`
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url,omitempty"`

	// Endpoints are further base URLs of the same server, which is then run in
	// HA: they serve the same objects from one store, and a resourceVersion of
	// one is good at all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:Pattern=`^https?://[^/?#@]+(/[^?#]*)?$`
	// +kubebuilder:validation:items:MaxLength=2048
	Endpoints []string `json:"endpoints,omitempty"`

	// ServerAddressByClientCIDRs is where clients that go to the server
	// themselves find it, as discovery tells them for each of its groups. By
	// default the host and path of URL, or of the first endpoint, for everybody.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	ServerAddressByClientCIDRs []metav1.ServerAddressByClientCIDR `json:"serverAddressByClientCIDRs,omitempty"`

	// OpenAPIPath is the path below the base URL at which the server publishes
	// OpenAPI: v2 at OpenAPIPath/v2, v3 at OpenAPIPath/v3.
	// +optional
	// +kubebuilder:default="/openapi"
	// +kubebuilder:validation:Pattern=`^/[^?#]*$`
	// +kubebuilder:validation:MaxLength=512
	OpenAPIPath string `json:"openAPIPath,omitempty"`

	// CABundle holds the certificates, PEM, that the server's own must come from.
	// Without it the gateway's host decides.
	// +optional
	CABundle []byte `json:"caBundle,omitempty"`

	// ServerName is the name that the server's certificate must carry, if it is
	// not the host in its URL.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServerName string `json:"serverName,omitempty"`

	// Groups are the API groups that the gateway sends to this server, if it
	// serves them; no others. The core group is "". "*.DOMAIN" is all groups below
	// a domain. "*" trusts the server with any group, whatever it comes to serve,
	// except reserved ones: the core group, groups without a dot, such as apps,
	// and groups below k8s.io, kubernetes.io and xbernetes.io, which have to be
	// named themselves, or by "*.DOMAIN" within these domains. Where several
	// servers name a group, only those that name it most closely may have it: a
	// whole name before "*.DOMAIN", that before "*". Without Groups the server
	// gets no group.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=512
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^(\*|(\*\.)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$`
	Groups []string `json:"groups,omitempty"`

	// Priority settles which of two servers gets a group that neither holds yet:
	// the higher. It also orders groups in discovery, the higher first. A server
	// that holds a group keeps it, whatever the priorities.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=-20000
	// +kubebuilder:validation:Maximum=20000
	Priority int32 `json:"priority,omitempty"`

	// Identity is how the server learns who the caller is.
	// +optional
	// +kubebuilder:default={mode: Impersonate}
	Identity Identity `json:"identity,omitempty"`

	// Guard is what the gateway checks for the server, which then need not.
	// +optional
	Guard Guard `json:"guard,omitempty"`
}

// BaseURLs are all base URLs of the server, URL first, each once.
func (s *RemoteAPIServerSpec) BaseURLs() []string {
	var urls []string
	seen := map[string]bool{"": true}
	for _, u := range append([]string{s.URL}, s.Endpoints...) {
		if !seen[u] {
			seen[u] = true
			urls = append(urls, u)
		}
	}
	return urls
}

// IdentityMode is the mode of Identity, which is Impersonate where it is not said.
func (s *RemoteAPIServerSpec) IdentityMode() IdentityMode {
	return cmp.Or(s.Identity.Mode, Impersonate)
}

// IdentityMode is a way to tell a server who the caller is.
//
// +kubebuilder:validation:Enum=PassThrough;Impersonate;FrontProxy
type IdentityMode string

// The ways to tell a server who the caller is.
const (
	// PassThrough forwards the caller's own credentials, a bearer token; a client
	// certificate cannot be forwarded. The server can use the token anywhere, as
	// the caller: it must be trusted as much as every caller is.
	PassThrough IdentityMode = "PassThrough"
	// Impersonate sends the gateway's own credentials and Impersonate-* headers.
	// The gateway must be allowed to impersonate there. The default.
	Impersonate IdentityMode = "Impersonate"
	// FrontProxy sends X-Remote-* headers over TLS with the gateway's client
	// certificate, which the server's --requestheader-client-ca-file must cover.
	FrontProxy IdentityMode = "FrontProxy"
)

// Identity is how a server learns who the caller is, and how it knows the gateway.
type Identity struct {
	// Mode is the way.
	// +optional
	// +kubebuilder:default=Impersonate
	Mode IdentityMode `json:"mode,omitempty"`

	// Credentials are the gateway's own at this server: for discovery, OpenAPI
	// and health in every mode, and for the caller's requests where Mode is not
	// PassThrough. Without them the gateway asks as anonymous.
	// +optional
	Credentials *CredentialsReference `json:"credentials,omitempty"`
}

// CredentialsReference says where the gateway finds its own credentials at a
// server: a Secret for an object in an API, files for one in a file. Neither
// place may name the other's.
type CredentialsReference struct {
	// SecretName names a Secret in the gateway's own namespace
	// (--credentials-namespace), with any of the keys tls.crt and tls.key, token,
	// kubeconfig. The Secret must carry the label ServerLabel with this server's
	// name: nobody may borrow another server's.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName,omitempty"`

	// ClientCertificateFile and ClientKeyFile are paths of a client certificate
	// and its key, PEM, read again when they change. Only in a servers file.
	// +optional
	ClientCertificateFile string `json:"clientCertificateFile,omitempty"`
	// ClientKeyFile is the path of the certificate's key.
	// +optional
	ClientKeyFile string `json:"clientKeyFile,omitempty"`

	// TokenFile is the path of a bearer token, read again when it changes. Only
	// in a servers file.
	// +optional
	TokenFile string `json:"tokenFile,omitempty"`

	// Kubeconfig is the path of a kubeconfig, of whose current context the
	// credentials are taken, and nothing else. Only in a servers file.
	// +optional
	Kubeconfig string `json:"kubeconfig,omitempty"`
}

// ServerLabel is the label by which a Secret says which RemoteAPIServer's
// credentials it holds.
const ServerLabel = GroupName + "/server"

// Guard is what the gateway checks before a request reaches the server. With any
// of it, requests that could be read in two ways are refused, and writes of
// callers whom the gateway does not know.
type Guard struct {
	// Namespaces: the namespace must exist and be active, and deleting it
	// empties it on this server first.
	// +optional
	Namespaces bool `json:"namespaces,omitempty"`
	// Authorization: the caller must be allowed by the core server to do what the
	// request does, whatever its verb.
	// +optional
	Authorization bool `json:"authorization,omitempty"`
	// Quota: the namespace's count/<resource>.<group> must have room for it.
	// +optional
	Quota bool `json:"quota,omitempty"`
}

// The conditions of a RemoteAPIServer.
const (
	// ConditionAvailable is true while the server answers and its discovery is known.
	ConditionAvailable = "Available"
	// ConditionConformant is true when the last validation found nothing wrong.
	ConditionConformant = "Conformant"
	// ConditionGroupsUnique is true while the server holds every group it claims.
	ConditionGroupsUnique = "GroupsUnique"
)

// RemoteAPIServerStatus is what a gateway last saw of a server.
type RemoteAPIServerStatus struct {
	// ObservedGeneration is the generation of the spec that this is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions are Available, Conformant and GroupsUnique.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// GroupVersions are those that the gateway sends to this server, as
	// group/version, or version for the core group.
	// +optional
	// +listType=set
	GroupVersions []string `json:"groupVersions,omitempty"`

	// Version is what the server says of itself at /version.
	// +optional
	Version string `json:"version,omitempty"`

	// Latency is how long the server takes to answer the gateway's health check,
	// smoothed and rounded: it is written when it has changed by half.
	// +optional
	Latency *metav1.Duration `json:"latency,omitempty"`

	// Endpoints are the server's base URLs and their health, in the spec's order.
	// +optional
	// +listType=map
	// +listMapKey=url
	Endpoints []EndpointStatus `json:"endpoints,omitempty"`
}

// EndpointStatus is the health of one base URL.
type EndpointStatus struct {
	// URL is the base URL.
	URL string `json:"url"`
	// Healthy is whether requests are sent there.
	Healthy bool `json:"healthy"`
	// Message says what is wrong.
	// +optional
	Message string `json:"message,omitempty"`
}
