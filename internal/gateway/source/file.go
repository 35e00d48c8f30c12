package source

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/yaml"
	kyaml "sigs.k8s.io/yaml"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
)

const (
	// maxFile is how large a servers file may be.
	maxFile = 16 << 20
	// maxServers is how many servers one source may bring.
	maxServers = 1000
	// pollFile is how often the file is read. Its content is compared, so the file may
	// be edited in place, replaced, or mounted from a ConfigMap.
	pollFile = 500 * time.Millisecond
)

// File is a Source that reads a file of RemoteAPIServers, and reads it again whenever it
// changes. Each YAML document is one server, or a list of servers.
type File struct {
	path    string
	log     *slog.Logger
	content []byte
	servers []*v1alpha1.RemoteAPIServer
	problem atomic.Pointer[string]
}

// NewFile reads the file for the first time. The error says what to mend.
func NewFile(path string, log *slog.Logger) (*File, error) {
	f := &File{path: path, log: log}
	content, err := readFile(path)
	if err != nil {
		return nil, err
	}
	if f.servers, err = Parse(content); err != nil {
		return nil, fmt.Errorf("read servers file %s: %w", path, err)
	}
	f.content = content
	return f, nil
}

// Run implements Source.
func (f *File) Run(ctx context.Context, set func([]*v1alpha1.RemoteAPIServer)) error {
	set(f.servers)
	tick := time.NewTicker(pollFile)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		content, err := readFile(f.path)
		if err == nil && bytes.Equal(content, f.content) {
			f.problem.Store(nil) // a bad edit was undone
			continue
		}
		var servers []*v1alpha1.RemoteAPIServer
		if err == nil {
			servers, err = Parse(content)
		}
		if err != nil {
			f.complain(err)
			continue
		}
		f.problem.Store(nil)
		f.content, f.servers = content, servers
		f.log.Info("servers file read", "file", f.path, "servers", len(servers))
		set(servers)
	}
}

// complain logs a fault of the file, once, and keeps it for Problem.
func (f *File) complain(err error) {
	text := fmt.Sprintf("read servers file %s: %v; the servers known before are served until it is mended", f.path, err)
	if before := f.problem.Swap(&text); before == nil || *before != text {
		f.log.Error("servers file cannot be used", "file", f.path, "error", err)
	}
}

// SetStatus implements Source: a file has no status.
func (f *File) SetStatus(string, v1alpha1.RemoteAPIServerStatus) {}

// Problem implements Source.
func (f *File) Problem() string {
	if p := f.problem.Load(); p != nil {
		return *p
	}
	return ""
}

func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read servers file: %w", err)
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read servers file: %w", err)
	}
	if len(content) > maxFile {
		return nil, fmt.Errorf("read servers file %s: it is larger than %d MiB", path, maxFile>>20)
	}
	return content, nil
}

// Parse reads RemoteAPIServers from YAML or JSON documents. Each document is one server or
// a list. If a field does not exist, a name comes twice, or a server has no URL, Parse
// returns an error, and no servers.
func Parse(content []byte) ([]*v1alpha1.RemoteAPIServer, error) {
	var servers []*v1alpha1.RemoteAPIServer
	docs := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for n := 1; ; n++ {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		some, err := parseDocument(doc)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		servers = append(servers, some...)
	}
	return check(servers)
}

func parseDocument(doc []byte) ([]*v1alpha1.RemoteAPIServer, error) {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := kyaml.Unmarshal(doc, &head); err != nil {
		return nil, err
	}
	switch {
	case head.APIVersion == "" && head.Kind == "" && len(bytes.TrimSpace(stripComments(doc))) == 0:
		return nil, nil
	case head.APIVersion == v1alpha1.GroupVersion().String() && head.Kind == "RemoteAPIServer":
		s := &v1alpha1.RemoteAPIServer{}
		return []*v1alpha1.RemoteAPIServer{s}, kyaml.UnmarshalStrict(doc, s)
	case head.APIVersion == v1alpha1.GroupVersion().String() && head.Kind == "RemoteAPIServerList",
		head.APIVersion == "v1" && head.Kind == "List":
		list := &v1alpha1.RemoteAPIServerList{}
		if err := kyaml.UnmarshalStrict(doc, list); err != nil {
			return nil, err
		}
		var servers []*v1alpha1.RemoteAPIServer
		for i := range list.Items {
			servers = append(servers, &list.Items[i])
		}
		return servers, nil
	}
	return nil, fmt.Errorf("it is a %q of %q; want RemoteAPIServer or RemoteAPIServerList of %q", head.Kind, head.APIVersion, v1alpha1.GroupVersion())
}

// stripComments removes the lines that YAML does not read.
func stripComments(doc []byte) []byte {
	var out []byte
	for line := range bytes.Lines(doc) {
		if l := bytes.TrimSpace(line); len(l) > 0 && l[0] != '#' && !bytes.Equal(l, []byte("---")) {
			out = append(out, line...)
		}
	}
	return out
}

// check refuses invalid servers, and returns the others sorted by name.
func check(servers []*v1alpha1.RemoteAPIServer) ([]*v1alpha1.RemoteAPIServer, error) {
	if len(servers) > maxServers {
		return nil, fmt.Errorf("there are %d servers; a gateway takes %d", len(servers), maxServers)
	}
	servers = firstServers(servers)
	for i, s := range servers {
		if len(validation.IsDNS1123Subdomain(s.Name)) > 0 {
			return nil, fmt.Errorf("metadata.name %q is no name; use lower-case letters, digits, - and .", s.Name)
		}
		if i > 0 && servers[i-1].Name == s.Name {
			return nil, fmt.Errorf("two servers are named %q; give each a name of its own", s.Name)
		}
		if err := Check(s, true); err != nil {
			return nil, err
		}
	}
	return servers, nil
}

// firstServers sorts servers by name, and returns as many as a gateway takes.
func firstServers(servers []*v1alpha1.RemoteAPIServer) []*v1alpha1.RemoteAPIServer {
	slices.SortStableFunc(servers, func(a, b *v1alpha1.RemoteAPIServer) int { return cmp.Compare(a.Name, b.Name) })
	return servers[:min(len(servers), maxServers)]
}

// Check says what is wrong with a server's spec by itself, without asking the server. A
// spec in a file names the gateway's credentials as files. A spec in an API must name them
// as Secrets: an object must not make the gateway read its own disk.
func Check(s *v1alpha1.RemoteAPIServer, inFile bool) error {
	if len(s.Spec.BaseURLs()) == 0 {
		return fmt.Errorf("server %q has no URL; set spec.url, spec.endpoints, or both", s.Name)
	}
	for _, g := range s.Spec.Groups {
		if name := strings.TrimPrefix(g, "*."); g != "" && g != "*" && len(validation.IsDNS1123Subdomain(name)) > 0 {
			return fmt.Errorf("server %q: spec.groups has %.100q; want the name of a group, \"\" for the core group, \"*.DOMAIN\" for all groups below a domain, or \"*\" for any", s.Name, g)
		}
	}
	c := s.Spec.Identity.Credentials
	switch {
	case c == nil:
	case inFile && c.SecretName != "":
		return fmt.Errorf("server %q: spec.identity.credentials.secretName is for objects in an API; in a file name files: clientCertificateFile and clientKeyFile, tokenFile, or kubeconfig", s.Name)
	case !inFile && (c.ClientCertificateFile != "" || c.ClientKeyFile != "" || c.TokenFile != "" || c.Kubeconfig != ""):
		return fmt.Errorf("server %q: spec.identity.credentials names files, which only a servers file may; name a Secret: secretName", s.Name)
	case (c.ClientCertificateFile == "") != (c.ClientKeyFile == ""):
		return fmt.Errorf("server %q: spec.identity.credentials needs clientCertificateFile and clientKeyFile together", s.Name)
	case c.Kubeconfig != "" && (c.ClientCertificateFile != "" || c.TokenFile != ""):
		return fmt.Errorf("server %q: spec.identity.credentials has a kubeconfig and other files; give one or the other", s.Name)
	}
	return nil
}
