package reads

import (
	"context"

	"github.com/xbernetes/xbernetes/internal/gateway/conformance/ask"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/check"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/survey"
)

const (
	acceptTable    = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
	acceptMetadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
)

// as lists a resource in another form. The error is a check.Skipped if the server
// does not have that form.
func as(ctx context.Context, s *survey.Survey, request ask.Request, kind string) (ask.Object, error) {
	o, err := s.Client().Object(ctx, request)
	switch {
	case err != nil:
		return nil, err
	case o.Text("kind") != kind:
		return nil, check.Skipf("the server does not give it as a %s; kubectl shows names and ages only", kind)
	case o.Text("apiVersion") != "meta.k8s.io/v1":
		return nil, request.Errorf("the %s is of apiVersion %q; want meta.k8s.io/v1", kind, o.Text("apiVersion"))
	}
	return o, nil
}

// asTable lists a resource as a Table, and returns the Table and its rows.
func asTable(ctx context.Context, s *survey.Survey, request ask.Request) (ask.Object, []ask.Object, error) {
	table, err := as(ctx, s, request, "Table")
	if err != nil {
		return nil, nil, err
	}
	rows, err := table.Array("rows")
	if err != nil {
		return nil, nil, request.Errorf("%w", err)
	}
	return table, rows, nil
}

func checkTable(ctx context.Context, s *survey.Survey, one *survey.Sample) error {
	request := listOf(one, "limit", "5")
	request.Accept = acceptTable
	table, rows, err := asTable(ctx, s, request)
	if err != nil {
		return err
	}
	columns, _ := table["columnDefinitions"].([]any)
	if len(columns) == 0 {
		return request.Errorf("the Table has no columnDefinitions")
	}
	for i, c := range columns {
		column, _ := c.(map[string]any)
		if ask.Object(column).Text("name") == "" || ask.Object(column).Text("type") == "" {
			return request.Errorf("columnDefinitions[%d] has no name or no type", i)
		}
	}
	if len(rows) == 0 && len(one.Items) > 0 {
		return request.Errorf("the Table has no rows, and the list has objects")
	}
	for i, row := range rows {
		// One cell too many does no harm: Kubernetes' own ipaddresses have it.
		if cells, _ := row["cells"].([]any); len(cells) < len(columns) {
			return request.Errorf("rows[%d] has %d cells for %d columns", i, len(cells), len(columns))
		}
	}
	return nil
}

func checkIncludeObject(ctx context.Context, s *survey.Survey, one *survey.Sample) error {
	for _, include := range []string{"Metadata", "None"} {
		request := listOf(one, "limit", "5", "includeObject", include)
		request.Accept = acceptTable
		_, rows, err := asTable(ctx, s, request)
		if err != nil {
			return err
		}
		for i, row := range rows {
			given, _ := row["object"].(map[string]any)
			o := ask.Object(given)
			if include == "None" && o != nil {
				return request.Errorf("rows[%d] holds an object, a %q", i, o.Text("kind"))
			}
			if include == "Metadata" && (o.Text("kind") != "PartialObjectMetadata" || o.Name() == "") {
				return request.Errorf("rows[%d] holds a %q with name %q; want a PartialObjectMetadata", i, o.Text("kind"), o.Name())
			}
		}
	}
	return nil
}

func checkMetadataOnly(ctx context.Context, s *survey.Survey, one *survey.Sample) error {
	request := listOf(one, "limit", "5")
	request.Accept = acceptMetadata
	list, err := as(ctx, s, request, "PartialObjectMetadataList")
	if err != nil {
		return err
	}
	items, err := list.Items()
	if err != nil {
		return request.Errorf("%w", err)
	}
	for _, item := range items {
		if item.Name() == "" {
			return request.Errorf("an item has no metadata.name")
		}
		for field := range item {
			if field != "metadata" && field != "kind" && field != "apiVersion" {
				return request.Errorf("item %q holds %q, which is not metadata", item.Name(), field)
			}
		}
	}
	return nil
}
