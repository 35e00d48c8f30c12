package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/xbernetes/xbernetes/internal/etcdapi"
	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/usage"
)

// version is set by the linker in a release; see the Makefile.
var version = "dev"

// versionInfo is the versions of xb and of what it serves.
type versionInfo struct {
	XB            string `json:"xb"`
	Go            string `json:"go"`
	Platform      string `json:"platform"`
	Kubernetes    string `json:"kubernetes"`
	Etcd          string `json:"etcd"`
	JournalFormat int    `json:"journalFormat"`
}

func versions() versionInfo {
	return versionInfo{
		XB: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Kubernetes: dependency("k8s.io/kubernetes"), Etcd: etcdapi.Version, JournalFormat: journal.FormatVersion,
	}
}

func (v versionInfo) text() string {
	return fmt.Sprintf("xb %s (%s, %s)\nKubernetes API %s\netcd API %s\njournal format %d\n",
		v.XB, v.Go, v.Platform, v.Kubernetes, v.Etcd, v.JournalFormat)
}

func newVersionCommand() *cobra.Command {
	output := "text"
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of xb and of what it serves",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch output {
			case "text":
				_, err := fmt.Fprint(cmd.OutOrStdout(), versions().text())
				return err
			case "json":
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(versions())
			}
			return fmt.Errorf("-o is %q; want text or json", output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", output, "text or json")
	usage.OneOf(cmd, "output", "text", "json")
	return cmd
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
