package discovery

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/munnerz/goautoneg"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	openapihandler "k8s.io/kube-openapi/pkg/handler"

	"github.com/xbernetes/xbernetes/internal/weight"

	"github.com/xbernetes/xbernetes/internal/gateway/discovery/ownership"
	"github.com/xbernetes/xbernetes/internal/gateway/discovery/swagger"
)

// openapi serves the OpenAPI of all servers.
type openapi struct {
	v3      atomic.Pointer[rendered]
	v3Of    []*OpenAPIDocument // the documents that v3 was made of, by member; only Set uses it
	wanted  atomic.Bool        // somebody has asked for v2
	version atomic.Int64       // grows with every change of v2

	mu     sync.Mutex // guards what follows
	merged *swagger.Merged
	order  []string
	v2     *rendered // of version v2At; nil: none
	v2At   int64
}

// rendered is a document in the forms that it is served in.
type rendered struct {
	json   []byte
	etag   string
	proto  func() ([]byte, error) // the document in protobuf; see makingProto
	zipped func() []byte          // json, compressed
}

func render(json []byte, etag string) *rendered {
	return &rendered{
		json: json, etag: etag,
		proto: sync.OnceValues(func() ([]byte, error) { return toProto(json) }),
		zipped: sync.OnceValue(func() []byte {
			var out bytes.Buffer
			w, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed)
			_, _ = w.Write(json) // a buffer takes all
			_ = w.Close()
			return out.Bytes()
		}),
	}
}

// mostProto is the greatest weight of a merged OpenAPI v2 that is encoded in protobuf, which
// takes several times as much memory for a moment.
const mostProto = 128 << 20

var makingProto sync.Mutex // held while protobuf is encoded, to bound the memory

func toProto(json []byte) ([]byte, error) {
	if weight.Of(json) > mostProto {
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
			Message: "the OpenAPI v2 of all servers together is too large to be made protobuf: ask for application/json, or for OpenAPI v3",
		}}
	}
	makingProto.Lock()
	defer makingProto.Unlock()
	return openapihandler.ToProtoBinary(json)
}

// set takes the members' OpenAPI. It touches only parts that have changed; a document is
// made of the parts when a client asks for it.
func (o *openapi) set(members []Member, owned ownership.Assignment, groups map[string][]string, moved bool) {
	docs := make([]*OpenAPIDocument, len(members))
	news := moved || len(docs) != len(o.v3Of)
	for i := range members {
		docs[i] = members[i].OpenAPI
		news = news || docs[i] != o.v3Of[i]
	}
	if !news {
		return
	}
	o.v3Of = docs
	o.v3.Store(render(rootV3(members, owned.Holder)))
	o.mu.Lock()
	defer o.mu.Unlock()
	o.order = o.order[:0]
	gone := map[string]bool{}
	for _, name := range o.merged.Servers() {
		gone[name] = true
	}
	for i := range members {
		m := &members[i]
		delete(gone, m.Name)
		o.order = append(o.order, m.Name)
		var doc *swagger.Document
		if m.OpenAPI != nil {
			doc = m.OpenAPI.V2
		}
		if o.merged.Set(m.Name, doc, groups[m.Name]) {
			o.version.Add(1)
		}
	}
	for name := range gone {
		o.merged.Set(name, nil, nil)
		o.version.Add(1)
	}
}

// renderV2 returns the present merged v2 document.
func (o *openapi) renderV2() *rendered {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := o.version.Load(); o.v2 == nil || o.v2At != now {
		body, sum := o.merged.JSON(o.order)
		o.v2, o.v2At = render(body, `"`+strings.ToUpper(hex.EncodeToString(sum[:]))+`"`), now
	}
	return o.v2
}

func (o *openapi) serveV3(w http.ResponseWriter, r *http.Request) {
	doc := o.v3.Load()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Etag", doc.etag)
	serve(w, r, doc)
}

const (
	swaggerProto    = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
	swaggerProtoOld = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
)

func (o *openapi) serveV2(w http.ResponseWriter, r *http.Request) {
	doc := o.renderV2()
	w.Header().Add("Vary", "Accept")
	w.Header().Set("Etag", doc.etag)
	accept := r.Header.Get("Accept")
	if accept == "" {
		accept = "application/json"
	}
	switch goautoneg.Negotiate(accept, []string{"application/json", swaggerProto, swaggerProtoOld}) {
	case "application/json":
		w.Header().Set("Content-Type", "application/json")
		serve(w, r, doc)
	case swaggerProto, swaggerProtoOld:
		body, err := doc.proto()
		if err != nil {
			WriteStatus(w, r, err)
			return
		}
		w.Header().Set("Content-Type", swaggerProto)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	default:
		w.WriteHeader(http.StatusNotAcceptable)
	}
}

// serve answers with a document in JSON, compressed if the client accepts that.
func serve(w http.ResponseWriter, r *http.Request, doc *rendered) {
	w.Header().Add("Vary", "Accept-Encoding")
	if len(doc.json) > 16<<10 && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") && r.Header.Get("Range") == "" {
		w.Header().Set("Content-Encoding", "gzip")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(doc.zipped()))
		return
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(doc.json))
}
