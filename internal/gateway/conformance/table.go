package conformance

import (
	"context"
	"net/http"
	"net/url"
)

const (
	acceptTable    = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
	acceptMetadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
)

func tableChecks() []check {
	const tables = concepts + "#receiving-resources-as-tables"
	return []check{
		{id: "table.shape", source: tables,
			convention: "a list as a Table has columns with name and type, and rows with a cell for each", run: checkTable},
		{id: "table.include-object", source: tables,
			convention: "the rows of a Table hold the objects' metadata, and nothing with includeObject=None", run: checkIncludeObject},
		{id: "table.metadata-only", source: concepts + "#alternate-representations-of-resources",
			convention: "a list as PartialObjectMetadataList holds metadata and nothing else", run: checkMetadataOnly},
	}
}

// as lists a resource in another form; nil if the server does not have that form.
func (s *session) as(ctx context.Context, one *sample, accept, kind string, query url.Values) (*answer, object, error) {
	a, err := s.client.ask(ctx, request{path: one.path(""), query: query, accept: accept})
	if err != nil {
		return nil, nil, err
	}
	o, err := a.object(http.StatusOK)
	if err != nil {
		return nil, nil, err
	}
	if o.text("kind") != kind {
		return nil, nil, unsaid("the server does not give it as a %s; kubectl shows names and ages only", kind)
	}
	if o.text("apiVersion") != "meta.k8s.io/v1" {
		return nil, nil, a.errorf("the %s is of apiVersion %q; want meta.k8s.io/v1", kind, o.text("apiVersion"))
	}
	return a, o, nil
}

// rows are those of a table.
func rows(a *answer, table object) ([]object, error) {
	list, _ := table["rows"].([]any)
	var rows []object
	for i, v := range list {
		row, ok := v.(map[string]any)
		if !ok {
			return nil, a.errorf("rows[%d] is %s; want an object", i, kindOf(v))
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func checkTable(ctx context.Context, s *session) finding {
	return each(s.samples, func(one *sample) error {
		a, table, err := s.as(ctx, one, acceptTable, "Table", url.Values{"limit": {"5"}})
		if err != nil {
			return err
		}
		columns, _ := table["columnDefinitions"].([]any)
		if len(columns) == 0 {
			return a.errorf("the Table has no columnDefinitions")
		}
		for i, c := range columns {
			column, _ := c.(map[string]any)
			if object(column).text("name") == "" || object(column).text("type") == "" {
				return a.errorf("columnDefinitions[%d] has no name or no type", i)
			}
		}
		all, err := rows(a, table)
		if err != nil {
			return err
		}
		if len(all) == 0 && len(one.items) > 0 {
			return a.errorf("the Table has no rows, and the list has objects")
		}
		for i, row := range all {
			// One too many does no harm: Kubernetes' own ipaddresses have it.
			if cells, _ := row["cells"].([]any); len(cells) < len(columns) {
				return a.errorf("rows[%d] has %d cells for %d columns", i, len(cells), len(columns))
			}
		}
		return nil
	})
}

func checkIncludeObject(ctx context.Context, s *session) finding {
	return s.eachFilled(3, func(one *sample) error {
		for _, include := range []string{"Metadata", "None"} {
			a, table, err := s.as(ctx, one, acceptTable, "Table", url.Values{"limit": {"5"}, "includeObject": {include}})
			if err != nil {
				return err
			}
			all, err := rows(a, table)
			if err != nil {
				return err
			}
			for i, row := range all {
				o, _ := row["object"].(map[string]any)
				kind := object(o).text("kind")
				if include == "None" && o != nil {
					return a.errorf("rows[%d] holds an object, a %q", i, kind)
				}
				if include == "Metadata" && (kind != "PartialObjectMetadata" || object(o).name() == "") {
					return a.errorf("rows[%d] holds a %q with name %q; want a PartialObjectMetadata", i, kind, object(o).name())
				}
			}
		}
		return nil
	})
}

func checkMetadataOnly(ctx context.Context, s *session) finding {
	return s.eachFilled(3, func(one *sample) error {
		a, list, err := s.as(ctx, one, acceptMetadata, "PartialObjectMetadataList", url.Values{"limit": {"5"}})
		if err != nil {
			return err
		}
		items, err := list.items()
		if err != nil {
			return a.errorf("%w", err)
		}
		for _, item := range items {
			if item.name() == "" {
				return a.errorf("an item has no metadata.name")
			}
			for field := range item {
				if field != "metadata" && field != "kind" && field != "apiVersion" {
					return a.errorf("item %q holds %q, which is not metadata", item.name(), field)
				}
			}
		}
		return nil
	})
}
