// Package xbernetes holds no code: only the test that keeps the rooms of the
// house apart.
package xbernetes

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

const module = "github.com/xbernetes/xbernetes/"

// rule says what one package may import: what is not listed is refused, and
// what is listed but not imported is refused too, so that a rule never allows
// more than the code needs.
type rule struct {
	pkg     string // the package's path below the module
	reason  string
	own     []string // packages of this module; patterns
	foreign []string // packages of other modules; patterns
}

// A pattern is an import path, or one that ends in /... for all packages below it.

const (
	apimachinery = "k8s.io/apimachinery/..."
	apiserver    = "k8s.io/apiserver/..."
	clientGo     = "k8s.io/client-go/..."
	kubeAPI      = "k8s.io/api/..."
	prometheus   = "github.com/prometheus/client_golang/..."
)

// every allows all packages. For the one that wires the others, and for the one
// that embeds Kubernetes, a list would only repeat their go.mod.
var every = []string{"..."}

var rules = []rule{
	{"cmd/xb", "the only package that names drivers and wires a server", every, every},

	{"api/aggregation/direct", "a client's way past the gateway", nil, []string{apimachinery, clientGo}},
	{"api/aggregation/reserve", "a client of the gateway's reservations", []string{"api/aggregation/v1alpha1"}, []string{apimachinery, clientGo}},
	{"api/aggregation/v1alpha1", "plain types for others to import", nil, []string{apimachinery}},
	{"api/region/client", "what programs use; asks regions through the protocol alone",
		[]string{"api/region/v1alpha1", "internal/backoff", "internal/region/definitions", "internal/region/kube", "internal/region/payload", "internal/region/protocol", "internal/region/route", "internal/region/stored"}, []string{apimachinery, clientGo, "sigs.k8s.io/yaml"}},
	{"api/region/v1alpha1", "plain types that hold plain types of Kubernetes", nil, []string{kubeAPI, apimachinery}},
	{"api/transaction/client", "sends transactions, to whichever server", []string{"api/transaction/v1alpha1"}, []string{apimachinery, clientGo}},
	{"api/transaction/v1alpha1", "plain types for others to import", nil, []string{apimachinery}},
	{"api/servicesync/v1alpha1", "plain types that hold plain types of Kubernetes", nil, []string{kubeAPI, apimachinery}},

	{"internal/metrics", "serves a registry, whatever is in it", nil, []string{"github.com/prometheus/client_golang/..."}},
	{"internal/awspolicy", "says what others need of AWS, and needs nothing itself", nil, nil},
	{"internal/gauges", "shows what others counted; the only room of journals that knows Prometheus", []string{"internal/etcdapi", "internal/notify", "internal/replica", "internal/replica/stats"}, []string{"github.com/prometheus/client_golang/prometheus"}},
	{"internal/usage", "the manners of commands, whatever they do", nil, []string{"github.com/spf13/...", "golang.org/x/term"}},
	{"internal/collector", "paces the collector of any process", nil, []string{"github.com/KimMachineGun/automemlimit/memlimit"}},
	{"internal/apply", "sends transactions as any client does", []string{"api/transaction/client", "api/transaction/v1alpha1"}, []string{apimachinery, clientGo, "github.com/aymanbagabas/go-udiff", "sigs.k8s.io/cli-utils/pkg/kstatus/status", "sigs.k8s.io/yaml"}},
	{"internal/leader", "elects, whatever the work is", nil, []string{apimachinery, clientGo}},
	{"internal/backoff", "waits, whatever is tried", nil, nil},

	{"internal/journal", "the contract: anybody can implement it", nil, nil},
	{"internal/journal/blobname", "the rules for names that drivers share; knows no store", []string{"internal/journal"}, nil},
	{"internal/journal/frame", "what drivers write before bytes; knows no store", []string{"internal/journal"}, nil},
	{"internal/journal/journaltest", "what every driver's test runs", []string{"internal/journal"}, nil},
	{"internal/journal/faultlog", "wraps any journal", []string{"internal/journal"}, nil},
	{"internal/journal/memlog", "a driver knows the contract and its service", []string{"internal/journal", "internal/journal/blobname"}, nil},
	{"internal/journal/filelog", "a driver knows the contract and its service", []string{"internal/journal", "internal/journal/blobname", "internal/journal/filelog/disk", "internal/journal/filelog/segment"}, []string{"golang.org/x/sys/..."}},
	{"internal/journal/filelog/disk", "a file system; knows no journal", nil, []string{"golang.org/x/sys/..."}},
	{"internal/journal/filelog/segment", "one file, whatever others there are", []string{"internal/journal", "internal/journal/filelog/disk"}, []string{"golang.org/x/sys/..."}},
	{"internal/journal/azurelog", "a driver knows the contract and its service", []string{"internal/journal/objectlog", "internal/journal/objectlog/bucket"}, []string{"github.com/Azure/..."}},
	{"internal/journal/azurelog/azuretest", "runs the emulator; knows no journal", nil, []string{"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"}},
	{"internal/journal/gcslog", "a driver knows the contract and its service", []string{"internal/journal/objectlog", "internal/journal/objectlog/bucket"}, []string{"cloud.google.com/go/auth", "google.golang.org/api/..."}},
	{"internal/journal/gcslog/gcstest", "the store in memory, for tests; knows no journal", nil, []string{"github.com/fsouza/fake-gcs-server/fakestorage"}},
	{"internal/journal/objectlog", "a journal in any object store; knows none by name", []string{"internal/journal", "internal/journal/blobname", "internal/journal/frame", "internal/journal/objectlog/bucket", "internal/journal/objectlog/probe"}, nil},
	{"internal/journal/objectlog/bucket", "the contract of an object store: anybody can implement it", []string{"internal/backoff"}, nil},
	{"internal/journal/objectlog/buckettest", "what every object store's test runs", []string{"internal/journal", "internal/journal/objectlog/bucket", "internal/journal/objectlog/objecttest"}, nil},
	{"internal/journal/objectlog/objecttest", "goes wrong between a journal and a store, for tests", []string{"internal/journal/objectlog/bucket"}, nil},
	{"internal/journal/objectlog/probe", "tries a store; knows no journal", []string{"internal/journal/objectlog/bucket"}, nil},
	{"internal/journal/s3log", "a driver knows the contract and its service", []string{"internal/journal/objectlog", "internal/journal/objectlog/bucket", "internal/journal/s3log/s3bucket"}, nil},
	{"internal/journal/s3log/s3bucket", "the only room that speaks to S3; knows no journal", []string{"internal/journal/objectlog/bucket"}, []string{"github.com/aws/..."}},
	{"internal/journal/sqllog", "a driver knows the contract and its service", []string{"internal/backoff", "internal/journal", "internal/journal/blobname"}, []string{"github.com/jackc/pgx/v5/...", "golang.org/x/sync/errgroup"}},
	{"internal/journal/sqllog/pgtest", "a database for tests; knows no journal", nil, []string{"github.com/jackc/pgx/v5/..."}},
	{"internal/journal/natslog", "a driver knows the contract and its service, and holds no server", []string{"internal/backoff", "internal/journal", "internal/journal/blobname", "internal/journal/frame"}, []string{"github.com/nats-io/nats.go/...", "golang.org/x/sync/errgroup"}},
	{"internal/journal/natslog/embedded", "runs a server for the driver; stores nothing itself", []string{"internal/journal/natslog", "internal/privatefile"}, []string{"github.com/nats-io/nats.go", "github.com/nats-io/nats-server/v2/server"}},
	{"internal/journal/natslog/natstest", "servers for tests; knows no journal", nil, []string{"github.com/nats-io/nats-server/v2/server"}},
	{"internal/journal/s3log/s3test", "a store for tests; knows no journal", nil, []string{"github.com/johannesboyne/gofakes3", "github.com/johannesboyne/gofakes3/backend/s3mem"}},
	{"internal/mutants", "changes the text of rooms, and knows none of them", []string{"internal/privatefile"}, []string{"golang.org/x/sync/..."}},
	{"internal/sim", "runs replicas on a journal that goes wrong; only tests use it",
		[]string{"internal/journal", "internal/journal/faultlog", "internal/mvcc", "internal/notify", "internal/replica", "internal/snapshot"}, []string{"golang.org/x/sync/..."}},
	{"internal/sim/replay", "runs the tests of internal/sim on another machine", nil, []string{"github.com/tetratelabs/wazero/...", "golang.org/x/sync/..."}},
	{"internal/sim/stores", "runs replicas on real stores; tests only", nil, []string{}},
	{"internal/notify", "hints decide nothing; of journals they know slots", []string{"internal/backoff", "internal/journal"}, []string{"golang.org/x/sync/errgroup"}},
	{"internal/notify/snsnotify", "brings hints by SNS and SQS; reads no record", []string{"internal/journal", "internal/notify"}, []string{"github.com/aws/..."}},
	{"internal/notify/sqlnotify", "brings hints by PostgreSQL; reads no table", []string{"internal/journal", "internal/notify"}, []string{"github.com/jackc/pgx/v5/...", "golang.org/x/sync/errgroup"}},
	{"internal/notify/natsnotify", "brings hints by NATS; reads no stream", []string{"internal/journal", "internal/notify"}, []string{"github.com/nats-io/nats.go", "golang.org/x/sync/errgroup"}},
	{"internal/notify/notifytest", "replicas that are woken, for tests; knows no source of hints", []string{"internal/journal", "internal/mvcc", "internal/notify", "internal/replica"}, nil},
	{"internal/notify/snsnotify/snsfake", "SNS and SQS for tests; knows no hint", nil, nil},
	{"internal/mvcc", "the state is a pure function of the journal", []string{"internal/journal", "internal/mvcc/keys", "internal/mvcc/wire"}, nil},
	{"internal/mvcc/keys", "holds versions, whatever made them", nil, nil},
	{"internal/mvcc/wire", "writes numbers and strings, whatever they mean", nil, nil},
	{"internal/record", "the envelope between a journal and the state", []string{"internal/journal", "internal/mvcc"}, []string{"github.com/klauspost/compress/..."}},
	{"internal/snapshot", "the stored form of a state, for whoever writes or checks it", []string{"internal/journal", "internal/mvcc", "internal/record"}, []string{"golang.org/x/sync/..."}},
	{"internal/replica", "knows the journal's contract, no driver, and no API", []string{"internal/journal", "internal/notify", "internal/mvcc", "internal/record", "internal/replica/...", "internal/snapshot"}, []string{"golang.org/x/sync/..."}},
	{"internal/replica/access", "calls a journal, whatever is done with the answers", []string{"internal/backoff", "internal/journal", "internal/record", "internal/replica/stats", "internal/snapshot"}, []string{"golang.org/x/sync/..."}},
	{"internal/replica/agreement", "judges hashes, and neither reads nor writes a snapshot", []string{"internal/journal", "internal/mvcc", "internal/record"}, nil},
	{"internal/replica/archive", "states of a journal and its snapshots; proposes nothing", []string{"internal/journal", "internal/mvcc", "internal/record", "internal/replica/access", "internal/snapshot"}, nil},
	{"internal/replica/lease", "a clock beside the state; proposes nothing by itself", []string{"internal/journal", "internal/mvcc"}, nil},
	{"internal/replica/stats", "numbers, whoever counts and whoever reads them", nil, nil},
	{"internal/replica/turns", "who writes where, from what was read; knows no record and no store", []string{"internal/journal", "internal/mvcc"}, nil},
	{"internal/announce", "labels beside a journal; believes none", []string{"internal/journal", "internal/mvcc"}, []string{"golang.org/x/sync/..."}},
	{"internal/status", "reads what is stored, and asks no server", []string{"internal/announce", "internal/fsck", "internal/journal", "internal/mvcc", "internal/record", "internal/snapshot"}, nil},
	{"internal/fsck", "judges what replicas wrote, and so shares no code with them but the formats", []string{"internal/announce", "internal/journal", "internal/mvcc", "internal/record", "internal/snapshot"}, nil},
	{"internal/etcdapi", "the etcd API over a replica, nothing else", []string{"internal/etcdapi/direct", "internal/etcdapi/wire", "internal/mvcc", "internal/privatefile", "internal/replica"},
		[]string{"go.etcd.io/etcd/api/v3/...", "google.golang.org/..."}},
	{"internal/etcdapi/direct", "carries the calls of any service within a process, and knows none", nil, []string{"google.golang.org/grpc/..."}},
	{"internal/etcdapi/wire", "reads and writes messages, and answers none", []string{"internal/mvcc"},
		[]string{"go.etcd.io/etcd/api/v3/v3rpc/rpctypes", "google.golang.org/..."}},
	{"internal/kubeconfig", "what clients need, of whichever server; connects to none", []string{"internal/privatefile"}, []string{"k8s.io/client-go/rest", "k8s.io/client-go/tools/clientcmd/..."}},
	{"internal/kubelog", "klog's records, whoever logs them", nil, []string{"github.com/go-logr/logr", "k8s.io/klog/v2"}},
	{"internal/privatefile", "files for one user, of whoever keeps some", nil, nil},
	{"internal/door", "stands before any HTTP server, and knows none", nil, []string{"golang.org/x/time/rate"}},
	{"internal/door/secure", "serves HTTPS behind the door, whoever answers", []string{"internal/door"}, []string{apiserver}},
	{"internal/weight", "counts what a text holds, whoever has it", nil, nil},
	{"internal/pki", "certificates on disk, for whoever serves", []string{"internal/privatefile"}, nil},
	{"internal/controlplane", "knows an etcd endpoint and nothing below it", []string{"api/transaction/v1alpha1", "internal/controlplane/...", "internal/door", "internal/kubeconfig", "internal/kubelog"}, every},
	{"internal/controlplane/aggregation", "knows APIServices, and not who serves them to it", []string{"internal/pki"}, []string{apimachinery, clientGo, "k8s.io/kube-aggregator/..."}},
	{"internal/controlplane/away", "translates errors, and asks no store", nil,
		[]string{apimachinery, apiserver, clientGo, "go.etcd.io/etcd/api/v3/...", "google.golang.org/..."}},
	{"internal/controlplane/bootstrap", "is told which roles there are", []string{"internal/backoff"}, []string{kubeAPI, apimachinery, clientGo, "k8s.io/component-helpers/...", "golang.org/x/sync/..."}},
	{"internal/controlplane/clientcert", "remembers what certificates say, of whichever CAs", nil, []string{apiserver, "k8s.io/utils/lru"}},
	{"internal/controlplane/controllers", "reaches the store through the API alone", []string{"internal/controlplane/aggregation", "internal/controlplane/election", "internal/controlplane/identity", "internal/controlplane/roster"}, every},
	{"internal/controlplane/election", "picks a server for any work", nil, []string{kubeAPI, apimachinery, clientGo}},
	{"internal/controlplane/etcdlog", "comes before all of Kubernetes", nil, []string{"go.etcd.io/etcd/client/pkg/v3/logutil"}},
	{"internal/controlplane/identity", "files of one server; knows no other, and no store", []string{"internal/pki", "internal/privatefile"}, nil},
	{"internal/controlplane/stage", "keys and values of one transaction; knows no kinds", nil, []string{"go.etcd.io/etcd/api/v3/...", "go.etcd.io/etcd/client/v3/..."}},
	{"internal/controlplane/storage", "opens what kinds are stored by; knows no API server", []string{"internal/controlplane/stage"}, []string{apimachinery, apiserver, clientGo, "go.etcd.io/etcd/client/v3/..."}},
	{"internal/controlplane/transaction", "sends requests to the server that it is part of; reaches the store by a stage only", []string{"api/transaction/v1alpha1", "internal/controlplane/away", "internal/controlplane/stage", "internal/controlplane/transaction/upcoming"},
		[]string{kubeAPI, apimachinery, apiserver, clientGo, "go.etcd.io/etcd/client/v3", "k8s.io/apiextensions-apiserver/...", "k8s.io/kube-openapi/...", "sigs.k8s.io/yaml"}},
	{"internal/controlplane/transaction/upcoming", "shows namespaces to plugins, whoever creates them", nil, []string{kubeAPI, apimachinery, apiserver, clientGo}},
	{"internal/controlplane/roster", "certificates and keys in an etcd; knows no API server", []string{"internal/backoff"}, []string{"go.etcd.io/etcd/client/v3"}},

	{"internal/gateway", "puts the gateway's rooms together", []string{"api/aggregation/v1alpha1", "internal/door", "internal/door/secure", "internal/gateway/..."},
		[]string{apimachinery, apiserver, clientGo, prometheus, "golang.org/x/sync/..."}},
	{"internal/gateway/gatewaycmd", "flags of xb gateway; knows no journal",
		[]string{"api/aggregation/v1alpha1", "internal/gateway", "internal/gateway/conformance", "internal/gateway/identity", "internal/gateway/source", "internal/gateway/traffic", "internal/kubelog", "internal/usage"},
		[]string{apimachinery, clientGo, "github.com/spf13/..."}},
	{"internal/gateway/identity", "certificates and reviews of tokens; reads no request", []string{"internal/kubeconfig", "internal/pki", "internal/privatefile"}, []string{apimachinery, apiserver, clientGo}},
	{"internal/gateway/backend", "speaks to one registered server, and knows no other", []string{"api/aggregation/v1alpha1", "internal/gateway/call", "internal/gateway/endpoints", "internal/weight"},
		[]string{apimachinery, apiserver, "k8s.io/component-base/tracing/...", "go.opentelemetry.io/otel/trace", "golang.org/x/sync/..."}},
	{"internal/gateway/call", "what is known of a request; decides nothing", []string{"api/aggregation/v1alpha1"}, []string{apimachinery, apiserver}},
	{"internal/gateway/canonical", "reads requests, and judges and sends none", nil, []string{apimachinery, apiserver, "sigs.k8s.io/yaml"}},
	{"internal/gateway/conformance", "checks any API server, and knows no gateway", []string{"internal/gateway/conformance/..."}, []string{apimachinery, clientGo}},
	{"internal/gateway/conformance/ask", "asks one server, and knows no convention", []string{"internal/gateway/conformance/check", "internal/weight"}, []string{apimachinery, clientGo}},
	{"internal/gateway/conformance/catalog", "checks of discovery and OpenAPI; cannot write", []string{"internal/gateway/conformance/ask", "internal/gateway/conformance/check", "internal/gateway/conformance/schema", "internal/gateway/conformance/survey"},
		[]string{kubeAPI, apimachinery}},
	{"internal/gateway/conformance/check", "what a check is; knows no server", nil, nil},
	{"internal/gateway/conformance/reads", "checks of lists, objects and watches; cannot write", []string{"internal/gateway/conformance/ask", "internal/gateway/conformance/check", "internal/gateway/conformance/survey"},
		[]string{apimachinery}},
	{"internal/gateway/conformance/schema", "reads documents, whoever they come from", nil, []string{apimachinery}},
	{"internal/gateway/conformance/scratch", "the only room that writes to a server", []string{"internal/gateway/conformance/ask", "internal/gateway/conformance/check", "internal/gateway/conformance/survey"},
		[]string{apimachinery}},
	{"internal/gateway/conformance/survey", "finds out what a server serves, and judges nothing", []string{"internal/gateway/conformance/ask", "internal/gateway/conformance/check", "internal/gateway/conformance/schema", "internal/weight"},
		[]string{apimachinery}},
	{"internal/gateway/conformance/writes", "checks of writes, of objects of its own", []string{"internal/gateway/conformance/ask", "internal/gateway/conformance/check", "internal/gateway/conformance/scratch", "internal/gateway/conformance/survey"},
		[]string{apimachinery}},
	{"internal/gateway/discovery", "merges documents, whoever they come from", []string{"internal/gateway/canonical", "internal/gateway/discovery/...", "internal/weight"},
		[]string{kubeAPI, apimachinery, apiserver, clientGo, "k8s.io/kube-openapi/...", "github.com/munnerz/goautoneg"}},
	{"internal/gateway/discovery/ownership", "decides who holds a group, from claims alone", nil, nil},
	{"internal/gateway/discovery/swagger", "merges OpenAPI v2, and fetches and serves none", []string{"internal/weight"}, nil},
	{"internal/gateway/policy", "judges requests, and forwards none", []string{"api/aggregation/v1alpha1", "internal/gateway/call", "internal/gateway/canonical", "internal/gateway/policy/..."},
		[]string{apimachinery, apiserver, clientGo, kubeAPI}},
	{"internal/gateway/policy/core", "reads and writes the core server, and decides nothing",
		[]string{"internal/gateway/policy/ledger", "internal/gateway/policy/namespaces", "internal/gateway/policy/quota"}, []string{kubeAPI, apimachinery, clientGo}},
	{"internal/gateway/policy/ledger", "what gateways agree on; knows no Kubernetes", nil, nil},
	{"internal/gateway/policy/limitrange", "judges objects by their quantities, and reads no request", nil, []string{kubeAPI, apimachinery, clientGo}},
	{"internal/gateway/policy/namespaces", "keeps finalizers and ledgers together, by any client", []string{"internal/gateway/policy/ledger"}, nil},
	{"internal/gateway/policy/policytest", "a core server in memory; tests only",
		[]string{"internal/gateway/policy/ledger", "internal/gateway/policy/namespaces", "internal/gateway/policy/quota"}, nil},
	{"internal/gateway/policy/quota", "lets creates in, and reads no request and no quota object",
		[]string{"api/aggregation/v1alpha1", "internal/gateway/policy/ledger", "internal/gateway/policy/namespaces"}, nil},
	{"internal/gateway/policy/servers", "asks servers as the gateway, and knows no quota", []string{"api/aggregation/v1alpha1", "internal/gateway/canonical"},
		[]string{apimachinery, clientGo}},
	{"internal/gateway/policy/upkeep", "takes part in no request",
		[]string{"internal/gateway/policy/core", "internal/gateway/policy/ledger", "internal/gateway/policy/namespaces", "internal/gateway/policy/quota", "internal/gateway/policy/servers"},
		[]string{kubeAPI, apimachinery, clientGo}},
	{"internal/gateway/traffic", "bounds and records requests, and sends none", []string{"internal/door", "internal/gateway/backend", "internal/gateway/call", "internal/gateway/endpoints"},
		[]string{apiserver, prometheus, "k8s.io/utils/lru", "k8s.io/component-base/tracing/...", "go.opentelemetry.io/otel/...", "golang.org/x/time/rate"}},
	{"internal/gateway/endpoints", "knows which addresses of one server are well, and connects to none", nil, []string{"k8s.io/apimachinery/pkg/util/wait"}},
	{"internal/gateway/source", "finds servers and calls none of them", []string{"api/aggregation/v1alpha1", "internal/privatefile"},
		[]string{kubeAPI, apimachinery, clientGo, "golang.org/x/sync/...", "sigs.k8s.io/yaml"}},

	{"internal/region/agent", "works in one region; reaches service clusters by their rooms alone",
		[]string{"api/region/client", "api/region/v1alpha1", "internal/backoff", "internal/leader", "internal/region/agent/...", "internal/region/leftover", "internal/region/local", "internal/region/namespace", "internal/region/payload", "internal/region/stored"},
		[]string{kubeAPI, apimachinery, clientGo, prometheus, "golang.org/x/sync/..."}},
	{"internal/region/agent/offering", "the catalog of one region; is handed its service clusters, and opens none",
		[]string{"api/region/v1alpha1", "internal/region/agent/projection", "internal/region/agent/status", "internal/region/agent/views", "internal/region/catalog", "internal/region/cluster", "internal/region/local"}, []string{apimachinery, clientGo}},
	{"internal/region/agent/projection", "objects of claims, of whichever kind; knows nothing of what follows from them", []string{"api/region/v1alpha1", "internal/region/local", "internal/region/stored"}, []string{apimachinery}},
	{"internal/region/agent/site", "works for the service clusters of one region; knows no claim",
		[]string{"api/region/v1alpha1", "internal/backoff", "internal/region/agent/offering", "internal/region/agent/projection", "internal/region/agent/status", "internal/region/agent/views", "internal/region/cluster", "internal/region/local", "internal/region/namespace"},
		[]string{apimachinery, clientGo, "golang.org/x/sync/..."}},
	{"internal/region/agent/status", "writes statuses and Events, and finds nothing out", []string{"api/region/v1alpha1", "internal/region/local"}, []string{kubeAPI, apimachinery}},
	{"internal/region/agent/views", "watches, and decides nothing", []string{"api/region/v1alpha1", "internal/region/agent/projection", "internal/region/local", "internal/region/stored"},
		[]string{kubeAPI, apimachinery, clientGo, "golang.org/x/sync/..."}},
	{"internal/region/catalog", "what crosses to a service cluster and back; reads and writes nothing", []string{"api/region/v1alpha1"}, []string{apimachinery}},
	{"internal/region/cluster", "one service cluster; knows no region", []string{"internal/kubeconfig", "internal/region/namespace"}, []string{kubeAPI, apimachinery, clientGo}},
	{"internal/region/definitions", "creates definitions, and knows nothing of what they are for", []string{"api/region/v1alpha1", "internal/backoff"}, []string{clientGo, "sigs.k8s.io/yaml"}},
	{"internal/region/explore", "answers calls as regions would; knows what is stored, and not the protocol", []string{"internal/region/stored"}, nil},
	{"internal/region/facade", "forwards as whoever calls; has no credentials and writes nothing. What a way to a server needs is the gateway's",
		[]string{"api/aggregation/v1alpha1", "api/region/client", "internal/door", "internal/door/secure", "internal/gateway/backend", "internal/gateway/call", "internal/gateway/traffic",
			"internal/kubeconfig", "internal/region/facade/objects", "internal/pki", "internal/privatefile"}, []string{apimachinery, apiserver, clientGo, prometheus, "golang.org/x/sync/..."}},
	{"internal/region/facade/objects", "serves names as objects, through the library alone; forwards nothing", []string{"api/region/client", "api/region/v1alpha1", "internal/door"},
		[]string{"k8s.io/apiextensions-apiserver/pkg/generated/openapi", apimachinery, apiserver, clientGo, "k8s.io/kube-openapi/...", "sigs.k8s.io/yaml"}},
	{"internal/region/kube", "carries the protocol's calls to Kubernetes; decides nothing", []string{"api/region/v1alpha1", "internal/region/stored"}, []string{apimachinery, clientGo, "golang.org/x/sync/..."}},
	{"internal/region/leftover", "ends what clients left behind, by the library alone", []string{"api/region/client"}, []string{prometheus, "golang.org/x/sync/..."}},
	{"internal/region/local", "clients of one region; decides nothing", []string{"api/region/v1alpha1", "internal/region/kube", "internal/region/stored"}, []string{apimachinery, clientGo}},
	{"internal/region/namespace", "makes and removes namespaces, in whichever API", []string{"api/region/v1alpha1"}, []string{kubeAPI, apimachinery, clientGo}},
	{"internal/region/payload", "specs as text, wherever that is stored", []string{"api/region/v1alpha1"}, []string{kubeAPI, apimachinery}},
	{"internal/region/protocol", "decides by calls that it is handed; knows no Kubernetes", []string{"internal/region/stored"}, nil},
	{"internal/region/regioncmd", "flags of the commands of regions; knows no journal, and asks regions by the library alone",
		[]string{"api/region/client", "api/region/v1alpha1", "internal/gateway/traffic", "internal/kubeconfig", "internal/kubelog", "internal/leader", "internal/metrics", "internal/region/agent", "internal/region/facade", "internal/region/report", "internal/usage"},
		[]string{kubeAPI, prometheus, "github.com/spf13/...", "golang.org/x/sync/..."}},
	{"internal/region/regiontest", "servers for tests; knows no key", []string{"api/region/v1alpha1", "internal/privatefile", "internal/region/definitions", "internal/region/stored"}, []string{apimachinery, clientGo}},
	{"internal/region/report", "prints what was found, and asks nobody", []string{"api/region/client"}, nil},
	{"internal/region/route", "remembers what others found, and asks nobody", nil, []string{apimachinery}},
	{"internal/region/stored", "plain values, whoever stores them", nil, nil},

	{"internal/servicesync", "reads and writes ordinary clusters by the Kubernetes API", []string{"api/servicesync/v1alpha1", "internal/backoff", "internal/leader", "internal/servicesync/..."},
		[]string{kubeAPI, apimachinery, clientGo, prometheus, "sigs.k8s.io/mcs-api/...", "golang.org/x/sync/..."}},
	{"internal/servicesync/access", "speaks to one API, whosever it is, and decides nothing", []string{"api/servicesync/v1alpha1", "internal/servicesync/plan"},
		[]string{kubeAPI, apimachinery, clientGo, "sigs.k8s.io/mcs-api/...", "gopkg.in/evanphx/json-patch.v4"}},
	{"internal/servicesync/lease", "writes the own lease, and knows no peer",
		[]string{"api/servicesync/v1alpha1", "internal/servicesync/access", "internal/servicesync/clusterset", "internal/servicesync/plan"}, []string{apimachinery}},
	{"internal/servicesync/notebook", "remembers, and reads and writes no cluster", []string{"internal/servicesync/clusterset", "internal/servicesync/model", "internal/servicesync/plan"}, []string{apimachinery}},
	{"internal/servicesync/roster", "reads peers, and writes to none",
		[]string{"api/servicesync/v1alpha1", "internal/servicesync/access", "internal/servicesync/clusterset", "internal/servicesync/peers"}, []string{apimachinery, "golang.org/x/sync/..."}},
	{"internal/servicesync/model", "decides, and does nothing",
		[]string{"api/servicesync/v1alpha1", "internal/servicesync/admission", "internal/servicesync/clusterset", "internal/servicesync/endpointslice", "internal/servicesync/mcs", "internal/servicesync/plan", "internal/servicesync/template"},
		[]string{kubeAPI, apimachinery, "k8s.io/utils/ptr", "sigs.k8s.io/mcs-api/..."}},
	{"internal/servicesync/mcs", "decides about imports and exports, and knows no roles but what a member says",
		[]string{"api/servicesync/v1alpha1", "internal/servicesync/admission", "internal/servicesync/clusterset", "internal/servicesync/endpointslice", "internal/servicesync/plan", "internal/servicesync/template"},
		[]string{kubeAPI, apimachinery, "k8s.io/utils/ptr", "sigs.k8s.io/mcs-api/..."}},
	{"internal/servicesync/admission", "the only way in for what peers publish",
		[]string{"api/servicesync/v1alpha1", "internal/servicesync/clusterset", "internal/servicesync/endpointslice", "internal/servicesync/plan", "internal/servicesync/template"},
		[]string{kubeAPI, apimachinery, "k8s.io/utils/ptr"}},
	{"internal/servicesync/endpointslice", "counts and packs endpoints, whoever uses them",
		[]string{"api/servicesync/v1alpha1", "internal/servicesync/clusterset", "internal/servicesync/plan"}, []string{kubeAPI, apimachinery, "k8s.io/utils/ptr"}},
	{"internal/servicesync/template", "one table of the published fields of a Service; knows no decision",
		[]string{"api/servicesync/v1alpha1", "internal/servicesync/clusterset"}, []string{kubeAPI, apimachinery, "k8s.io/utils/ptr"}},
	{"internal/servicesync/clusterset", "what is known of clusters, for all that decide by it", []string{"api/servicesync/v1alpha1"}, []string{kubeAPI, apimachinery}},
	{"internal/servicesync/plan", "the words of a plan, for all that make or carry out one", nil, []string{kubeAPI, apimachinery}},
	{"internal/servicesync/synccmd", "flags of xb servicesync; knows no journal",
		[]string{"internal/kubeconfig", "internal/kubelog", "internal/leader", "internal/metrics", "internal/servicesync", "internal/servicesync/access", "internal/servicesync/migration", "internal/servicesync/model",
			"internal/servicesync/peers", "internal/servicesync/report", "internal/servicesync/store", "internal/servicesync/trust", "internal/usage"},
		[]string{apimachinery, clientGo, "github.com/spf13/...", "golang.org/x/sync/...", "golang.org/x/term"}},
	{"internal/servicesync/trust", "reads words, and knows no peer", []string{"internal/servicesync/model"}, []string{kubeAPI, apimachinery}},
	{"internal/servicesync/migration", "asks a controller by annotations, and is none",
		[]string{"api/servicesync/v1alpha1", "internal/servicesync/access", "internal/servicesync/clusterset", "internal/servicesync/lease", "internal/servicesync/model"},
		[]string{kubeAPI, apimachinery, clientGo}},
	{"internal/servicesync/peers", "finds clusters and reads none of them", []string{"internal/kubeconfig"},
		[]string{kubeAPI, apimachinery, clientGo, "github.com/fsnotify/fsnotify", "golang.org/x/sync/..."}},
	{"internal/servicesync/preflight", "checks a cluster before the work, and does none of it", []string{"api/servicesync/v1alpha1", "internal/servicesync/access"},
		[]string{kubeAPI, apimachinery, "k8s.io/apiextensions-apiserver/...", "sigs.k8s.io/mcs-api/...", "sigs.k8s.io/yaml", "golang.org/x/sync/..."}},
	{"internal/servicesync/queue", "orders keys, whatever they are", nil, []string{"k8s.io/client-go/util/workqueue"}},
	{"internal/servicesync/report", "tells people what the APIs hold, and needs no controller", []string{"api/servicesync/v1alpha1", "internal/servicesync/access", "internal/servicesync/clusterset", "internal/servicesync/endpointslice"}, []string{kubeAPI, apimachinery, clientGo}},
	{"internal/servicesync/store", "a source of peers that reads the store's leases", []string{"api/servicesync/v1alpha1", "internal/servicesync/access", "internal/servicesync/peers"}, []string{kubeAPI, clientGo}},

	{"internal/dev", "runs other commands of xb as processes, and serves nothing", []string{"internal/devstore", "internal/kubeconfig", "internal/privatefile"}, []string{"golang.org/x/sync/..."}},
	{"internal/devstore", "the object store of xb dev; knows no journal", nil,
		[]string{"github.com/Shopify/toxiproxy/v2", "github.com/aws/...", "github.com/rs/zerolog", "github.com/versity/versitygw/..."}},
	{"internal/devstore/storetest", "starts that store for a test", []string{"internal/devstore"}, nil},
}

// bans name what only some packages may import, also where a rule allows every
// package.
var bans = []struct {
	foreign string
	allowed []string
	reason  string
}{
	{"k8s.io/kubernetes/...", []string{"internal/controlplane", "internal/controlplane/controllers"}, "it takes minutes to build and has global state"},
	{"github.com/aws/aws-sdk-go-v2/...", []string{"internal/journal/s3log/s3bucket", "internal/notify/snsnotify", "internal/devstore"}, "cloud SDKs belong to drivers and notifiers"},
	{"google.golang.org/api/...", []string{"internal/journal/gcslog"}, "cloud SDKs belong to drivers and notifiers"},
	{"cloud.google.com/go/...", []string{"internal/journal/gcslog"}, "cloud SDKs belong to drivers and notifiers"},
	{"github.com/Azure/azure-sdk-for-go/...", []string{"internal/journal/azurelog", "internal/journal/azurelog/azuretest"}, "cloud SDKs belong to drivers and notifiers"},
	{"github.com/versity/versitygw/...", []string{"internal/devstore"}, "the object store is for xb dev only"},
	{"go.etcd.io/etcd/server/v3/...", nil, "etcd's server is for tests only"},
	{"k8s.io/klog/v2", []string{"internal/kubelog", "internal/controlplane/..."}, "one bridge leads klog to the process's logger"},
	{"google.golang.org/grpc/test/...", nil, "grpc's helpers for tests promise nothing to a product"},
}

func TestLayering(t *testing.T) {
	left := map[string]*rule{}
	for i := range rules {
		left[rules[i].pkg] = &rules[i]
	}
	for _, p := range list(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		r := left[name]
		if r == nil {
			t.Errorf("%s has no rule: say here what it may import, and why", name)
			continue
		}
		delete(left, name)
		for _, e := range r.breaches(p.Imports) {
			t.Errorf("%s %s: %s", name, e, r.reason)
		}
		for _, b := range bans {
			for _, imp := range p.Imports {
				if matches(imp, b.foreign) && !matchesAny(name, b.allowed) {
					t.Errorf("%s imports %s: %s", name, imp, b.reason)
				}
			}
		}
	}
	for name := range left {
		t.Errorf("there is a rule for %s, but no such package", name)
	}
}

// breaches holds a package's imports against its rule, both ways.
func (r *rule) breaches(imports []string) (found []string) {
	used := map[string]bool{}
	for _, imp := range imports {
		allowed, path := r.foreign, imp
		if own, ok := strings.CutPrefix(imp, module); ok {
			allowed, path = r.own, own
		} else if !strings.Contains(strings.SplitN(imp, "/", 2)[0], ".") {
			continue // standard library
		}
		ok := false
		for _, pattern := range allowed {
			if matches(path, pattern) {
				ok, used[pattern] = true, true
			}
		}
		if !ok {
			found = append(found, "imports "+path)
		}
	}
	for _, pattern := range append(append([]string(nil), r.own...), r.foreign...) {
		if !used[pattern] {
			found = append(found, "may import "+pattern+", and does not")
		}
	}
	return found
}

// TestRulesBite: a rule refuses what it does not list, and what it lists in vain.
func TestRulesBite(t *testing.T) {
	r := rule{own: []string{"internal/journal"}, foreign: []string{"k8s.io/api/..."}}
	for name, test := range map[string]struct {
		imports []string
		want    string
	}{
		"all of it":         {[]string{"fmt", module + "internal/journal", "k8s.io/api/core/v1"}, ""},
		"a room below":      {[]string{module + "internal/journal", module + "internal/journal/memlog", "k8s.io/api/core/v1"}, "imports internal/journal/memlog"},
		"another module":    {[]string{module + "internal/journal", "k8s.io/api/core/v1", "k8s.io/apiserver/x"}, "imports k8s.io/apiserver/x"},
		"a rule not needed": {[]string{"k8s.io/api/core/v1"}, "may import internal/journal, and does not"},
	} {
		if got := strings.Join(r.breaches(test.imports), "; "); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// TestMap holds the README's map of packages against the packages there are: each
// stands in the map, by its own path or by a name in the line of its parent.
func TestMap(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(readme), "\n## The map\n")
	table, _, _ = strings.Cut(table, "\n## ")
	told := map[string]bool{}
	name := regexp.MustCompile("`([a-z0-9./-]+)`")
	for line := range strings.Lines(table) {
		cells := strings.SplitN(line, "|", 3)
		if len(cells) < 3 {
			continue
		}
		for _, path := range name.FindAllStringSubmatch(cells[1], -1) {
			if _, err := os.Stat(path[1]); err != nil {
				t.Errorf("the README's map names %s, which is not there", path[1])
			}
			told[path[1]] = true
			for _, room := range name.FindAllStringSubmatch(cells[2], -1) {
				told[path[1]+"/"+room[1]] = true
			}
		}
	}
	if len(told) < 8 {
		t.Fatalf("the README's map names %d packages only", len(told))
	}
	for _, r := range rules {
		if !told[r.pkg] && !told[strings.TrimSuffix(r.pkg, "/v1alpha1")] {
			t.Errorf("%s is not in the README's map", r.pkg)
		}
	}
}

// matches says whether path is what pattern names, or is below it.
func matches(path, pattern string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "..."); ok {
		return strings.HasPrefix(path+"/", prefix)
	}
	return path == pattern
}

func matchesAny(path string, patterns []string) bool {
	for _, p := range patterns {
		if matches(path, p) {
			return true
		}
	}
	return false
}

type listed struct {
	ImportPath string
	Imports    []string
}

func list(t *testing.T) []listed {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "./api/...", "./cmd/...", "./internal/...").Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	var pkgs []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}
