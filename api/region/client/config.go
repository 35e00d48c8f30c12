package client

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"
)

// Config says which regions there are, and how this client reaches them with its own
// credentials. All clients must agree on Central and Register: the regions keep what was
// first used, and refuse a client with anything else.
type Config struct {
	// Regions are the APIs, by the region's name, a DNS label.
	Regions map[string]*rest.Config
	// Register is the region in which the membership is changed. Empty if there is a
	// central store.
	Register string
	// Central is the central store, which has the membership and the records of all
	// operations; nil if there is none.
	Central *rest.Config

	files map[string]string // the kubeconfigs of the regions, if Load has read them
}

// file is what a file of regions holds. Paths are relative to the file.
type file struct {
	Register string            `json:"register"`
	Central  string            `json:"central"`
	Regions  map[string]string `json:"regions"`
}

// Load reads a file of regions, YAML:
//
//	register: eu
//	regions:
//	  eu: eu.kubeconfig
//	  us: us.kubeconfig
//
// In the place of register there can be central, with the kubeconfig of the central store.
// Paths are relative to the file. The kubeconfigs are trusted, as those of kubectl are: they
// may name commands to run.
func Load(path string) (Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("read the regions: %w", err)
	}
	var f file
	if err := yaml.UnmarshalStrict(text, &f); err != nil {
		return Config{}, fmt.Errorf("read the regions in %s: %w", path, err)
	}
	c := Config{Register: f.Register, Regions: map[string]*rest.Config{}, files: map[string]string{}}
	at := func(kubeconfig string) string {
		if filepath.IsAbs(kubeconfig) {
			return kubeconfig
		}
		return filepath.Join(filepath.Dir(path), kubeconfig)
	}
	for name, kubeconfig := range f.Regions {
		c.files[name] = at(kubeconfig)
		if c.Regions[name], err = reach(c.files[name]); err != nil {
			return c, fmt.Errorf("region %s of %s: %w", name, path, err)
		}
	}
	if f.Central != "" {
		if c.Central, err = reach(at(f.Central)); err != nil {
			return c, fmt.Errorf("the central store of %s: %w", path, err)
		}
	}
	if err := c.check(); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// reach reads a kubeconfig. The protocol bounds what it asks at a time by itself.
func reach(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	return config, nil
}

func (c Config) check() error {
	if len(c.Regions) == 0 {
		return errors.New("no region is named")
	}
	for name := range c.Regions {
		if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
			return fmt.Errorf("%q cannot be a region's name: %s", name, wrong[0])
		}
	}
	switch {
	case c.Central != nil && c.Register != "":
		return errors.New("there is a central store: register must not be set")
	case c.Central == nil && c.Register == "":
		return errors.New("register must name the region in which the membership is changed")
	case c.Central == nil && c.Regions[c.Register] == nil:
		return fmt.Errorf("register names %s, which is not among the regions", c.Register)
	}
	return nil
}

// Anonymous returns the same configuration without any credentials: the addresses of the
// regions and the authorities of their certificates, for a server whose callers bring their
// own (Regions.As). It also returns the sorted names of the regions that had some.
func (c Config) Anonymous() (Config, []string) {
	none := Config{Regions: map[string]*rest.Config{}, Register: c.Register}
	var had []string
	for name, config := range c.Regions {
		none.Regions[name] = rest.AnonymousClientConfig(config)
		if hasCredentials(config) {
			had = append(had, name)
		}
	}
	if c.Central != nil {
		none.Central = rest.AnonymousClientConfig(c.Central)
		if hasCredentials(c.Central) {
			had = append(had, "the central store")
		}
	}
	slices.Sort(had)
	return none, had
}

func hasCredentials(c *rest.Config) bool {
	return c.BearerToken != "" || c.BearerTokenFile != "" || c.Username != "" || c.Password != "" ||
		c.CertFile != "" || len(c.CertData) > 0 || c.KeyFile != "" || len(c.KeyData) > 0 ||
		c.ExecProvider != nil || c.AuthProvider != nil || c.Impersonate.UserName != ""
}

// Kubeconfig returns a region's kubeconfig, with the files that it names put into it: with
// all that Load was given of credentials.
func (c Config) Kubeconfig(region string) ([]byte, error) {
	config, err := c.load(region)
	if err != nil {
		return nil, err
	}
	return clientcmd.Write(*config)
}

func (c Config) load(region string) (*api.Config, error) {
	path := c.files[region]
	if path == "" {
		return nil, fmt.Errorf("region %s is not among those that are configured", region)
	}
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig of region %s: %w", region, err)
	}
	if err := api.FlattenConfig(config); err != nil {
		return nil, fmt.Errorf("read what the kubeconfig of region %s names: %w", region, err)
	}
	return config, nil
}

// Through returns a kubeconfig that leads to a path of a facade, as the user of the kubeconfig
// of a region; if region is empty, of the register, or else of the first region by name. facade
// is the file of a kubeconfig, as `xb region serve` writes it. A user with a client certificate
// is refused: no server can pass that on.
func (c Config) Through(facade, path, region string) ([]byte, error) {
	front, err := clientcmd.LoadFromFile(facade)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig of the facade: %w", err)
	}
	if err := api.MinifyConfig(front); err != nil {
		return nil, fmt.Errorf("read the kubeconfig of the facade %s: %w", facade, err)
	}
	if err := api.FlattenConfig(front); err != nil {
		return nil, fmt.Errorf("read what the kubeconfig of the facade %s names: %w", facade, err)
	}
	if region = cmp.Or(region, c.Register); region == "" {
		region = slices.Min(slices.Collect(maps.Keys(c.files)))
	}
	own, err := c.load(region)
	if err != nil {
		return nil, err
	}
	if err := api.MinifyConfig(own); err != nil {
		return nil, fmt.Errorf("read the kubeconfig of region %s: %w", region, err)
	}
	user := own.AuthInfos[own.Contexts[own.CurrentContext].AuthInfo]
	if user == nil || len(user.ClientCertificateData) > 0 || user.Token == "" && user.TokenFile == "" && user.Exec == nil {
		return nil, fmt.Errorf("the user of region %s's kubeconfig has no bearer token, or a client certificate beside it: a facade passes on a token (token, tokenFile or exec) and nothing else", region)
	}
	context := front.Contexts[front.CurrentContext]
	front.Clusters[context.Cluster].Server = strings.TrimSuffix(front.Clusters[context.Cluster].Server, "/") + path
	context.AuthInfo = region
	front.AuthInfos = map[string]*api.AuthInfo{region: user}
	return clientcmd.Write(*front)
}
