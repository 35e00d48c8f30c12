package access

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
)

// List reads all objects like item and calls each with every page. fresh makes an empty
// list to read a page into; namespace "" reads all namespaces.
func List[L runtime.Object](ctx context.Context, a *API, item runtime.Object, namespace string, fresh func() L, each func(L)) error {
	client, resource, err := a.Resource(item)
	if err != nil {
		return err
	}
	next := ""
	for {
		page := fresh()
		req := client.Get().Resource(resource).Param("limit", "500").Param("continue", next)
		if namespace != "" {
			req = req.Namespace(namespace)
		}
		if err := req.Do(ctx).Into(page); err != nil {
			return fmt.Errorf("list %s: %w", resource, err)
		}
		each(page)
		m, err := meta.ListAccessor(page)
		if err != nil {
			return err
		}
		if next = m.GetContinue(); next == "" {
			return nil
		}
	}
}
