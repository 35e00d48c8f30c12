package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/xbernetes/xbernetes/internal/etcdapi"
	"github.com/xbernetes/xbernetes/internal/journal"
)

// version is set by the linker in a release; see the Makefile.
var version = "dev"

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of xb and of what it serves",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "xb %s (%s, %s/%s)\nKubernetes API %s\netcd API %s\njournal format %d\n",
				version, runtime.Version(), runtime.GOOS, runtime.GOARCH,
				dependency("k8s.io/kubernetes"), etcdapi.Version, journal.FormatVersion)
			return err
		},
	}
}

// dependency is the version of a module in this binary.
func dependency(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == path {
				return m.Version
			}
		}
	}
	return "unknown"
}
