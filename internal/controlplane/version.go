package controlplane

import (
	"runtime/debug"
	"strings"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/component-base/compatibility"
)

// release is the version of the Kubernetes release that this server is made
// from. Upstream sets its version by linker flags, which a library's user does
// not have: without them it says v0.0.0-master, which clients cannot parse.
type release struct {
	compatibility.EffectiveVersion
	version string // as in v1.37.1
}

// Info is what /version answers.
func (r release) Info() *version.Info {
	info := *r.EffectiveVersion.Info()
	info.GitVersion = r.version
	info.GitCommit, info.GitTreeState, info.BuildDate = "", "", ""
	if parts := strings.SplitN(strings.TrimPrefix(r.version, "v"), ".", 3); len(parts) == 3 {
		info.Major, info.Minor = parts[0], parts[1]
	}
	return &info
}

// released is v with the version of the Kubernetes release that this server is
// made from.
func released(v compatibility.EffectiveVersion) compatibility.EffectiveVersion {
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, m := range build.Deps {
			if m.Path == "k8s.io/kubernetes" {
				return release{v, m.Version}
			}
		}
	}
	return v
}
