package main

import (
	"fmt"
	"io"
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

// WriteText implements usage.Report.
func (v versionInfo) WriteText(w io.Writer) error {
	_, err := io.WriteString(w, v.text())
	return err
}

func newVersionCommand() *cobra.Command {
	var output usage.Output
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of xb and of what it serves",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output.Check(); err != nil {
				return err
			}
			return output.Write(cmd.OutOrStdout(), versions())
		},
	}
	output.Register(cmd)
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
