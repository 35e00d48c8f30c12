// Package definitions creates the definitions of what regions store in an API. It never
// changes a definition that is there.
package definitions

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/xbernetes/xbernetes/api/region/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/backoff"
)

const (
	created    = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	served     = 30 * time.Second // for new definitions to be served
	maxMessage = 1 << 10          // bytes of an answer that are shown
)

// kinds are what the definitions define.
var kinds = []string{"claims", "operations", "memberships", "accounts", "serviceclusters", "serviceclusterassignments", "regions", "catalogentries"}

// Install creates the definitions that are not there, and returns nil once the API serves
// all of them.
func Install(ctx context.Context, config *rest.Config) error {
	ctx, cancel := context.WithTimeout(ctx, served)
	defer cancel()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return err
	}
	a := api{client, strings.TrimSuffix(base.String(), "/")}
	for _, kind := range kinds {
		if a.serves(ctx, kind) != nil {
			return a.install(ctx)
		}
	}
	return nil
}

// api is one API.
type api struct {
	client *http.Client
	base   string
}

func (a api) install(ctx context.Context) error {
	for _, definition := range v1alpha1.CRDs() {
		body, err := yaml.YAMLToJSON(definition)
		if err != nil {
			return err
		}
		if err := a.ask(ctx, http.MethodPost, created, body, http.StatusCreated, http.StatusConflict); err != nil {
			return err
		}
	}
	pace := backoff.Backoff{First: 50 * time.Millisecond, Last: time.Second}
	for _, kind := range kinds {
		for n := 1; ; n++ {
			err := a.serves(ctx, kind)
			if err == nil {
				break
			}
			if pace.Pause(ctx, n) != nil {
				return fmt.Errorf("%s are not served: %w", kind, err)
			}
		}
	}
	return nil
}

func (a api) serves(ctx context.Context, kind string) error {
	return a.ask(ctx, http.MethodGet, "/apis/"+v1alpha1.GroupVersion().String()+"/"+kind+"?limit=1", nil, http.StatusOK)
}

// ask sends a request, and returns an error unless the answer has one of the codes.
func (a api) ask(ctx context.Context, method, path string, body []byte, codes ...int) error {
	request, err := http.NewRequestWithContext(ctx, method, a.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := a.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	for _, code := range codes {
		if response.StatusCode == code {
			return nil
		}
	}
	message, _ := io.ReadAll(io.LimitReader(response.Body, maxMessage)) // what there is of it
	return fmt.Errorf("%s: %s", response.Status, message)
}
