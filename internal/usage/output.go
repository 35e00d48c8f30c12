package usage

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// Output is -o of a command that prints a report: text or json.
type Output string

// Register adds the flag.
func (o *Output) Register(cmd *cobra.Command) {
	cmd.Flags().StringVarP((*string)(o), "output", "o", "text", "text or json")
	OneOf(cmd, "output", "text", "json")
}

// Check refuses anything else.
func (o Output) Check() error {
	if o != "text" && o != "json" {
		return fmt.Errorf("-o is %q; want text or json", string(o))
	}
	return nil
}

// Report is what a command found.
type Report interface {
	WriteText(w io.Writer) error
}

// Write writes the report as the flag says.
func (o Output) Write(w io.Writer, r Report) error {
	if o == "json" {
		return WriteJSON(w, r)
	}
	return r.WriteText(w)
}

// WriteJSON writes v indented, for people.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
