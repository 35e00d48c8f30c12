package migration

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/xbernetes/xbernetes/internal/servicesync/access"
	"github.com/xbernetes/xbernetes/internal/servicesync/model"
)

// Preview writes to out what the migration would write first, and what it would wait
// for. It writes nothing to any cluster.
func (m *Migration) Preview(ctx context.Context, out io.Writer) error {
	svc, err := m.get(ctx)
	if err != nil {
		return err
	}
	if err := m.checkHeir(ctx); err != nil {
		return err
	}
	next := m.annotate(svc)
	fmt.Fprintf(out, "%s: update Service %s: ask for the migration\n", m.At, m.Service)
	if err := printDifference(out, svc, next); err != nil {
		return err
	}
	seen, err := m.Look(ctx, m.Service)
	if err != nil {
		return err
	}
	seen.Input.Local.Service = next
	result := model.Decide(seen.Config, seen.Input)
	for _, w := range result.Writes {
		fmt.Fprintf(out, "%s: %s %s %s: %s\n", m.At, w.Verb, access.KindOf(w.Object), access.ObjectName(w.Object), w.Why)
		if w.Before != nil {
			if err := printDifference(out, w.Before, w.Object); err != nil {
				return err
			}
		}
	}
	for _, e := range result.Events {
		fmt.Fprintf(out, "%s: %s: %s\n", m.At, e.Reason, e.Note)
	}
	if result.Facts.Holds != "" {
		fmt.Fprintf(out, "Then it %s.\n", result.Facts.Holds)
	}
	for _, id := range seen.Silent {
		fmt.Fprintf(out, "Peer %s could not be read, and is taken for silent here.\n", id)
	}
	_, err = fmt.Fprintln(out, "Nothing was written.")
	return err
}

func printDifference(out io.Writer, before, after model.Object) error {
	patch, err := access.Difference(before, after)
	if err != nil {
		return err
	}
	var fields map[string]any
	if err := json.Unmarshal(patch, &fields); err != nil {
		return fmt.Errorf("read own patch: %w", err)
	}
	if meta, ok := fields["metadata"].(map[string]any); ok {
		delete(meta, "resourceVersion")
		delete(meta, "uid")
		if len(meta) == 0 {
			delete(fields, "metadata")
		}
	}
	text, err := json.MarshalIndent(fields, "    ", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "    %s\n", text)
	return err
}
