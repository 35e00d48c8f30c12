package main

import (
	"log/slog"
	"os"
	"path/filepath"

	"github.com/xbernetes/xbernetes/internal/privatefile"
)

// complainOfExposed says so if other users of this machine can do more with a
// folder of ours than they should.
func complainOfExposed(log *slog.Logger, dir string) {
	if why := privatefile.Exposed(dir); why != "" {
		log.Warn("keys and data are in a folder that is open to other users; run chmod 700 on it, or choose another", "folder", dir, "reason", why)
	}
}

// defaultDataDir is where one user's server keeps its things: below
// $XDG_DATA_HOME, or ~/.local/share.
func defaultDataDir() string {
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "xbernetes")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "share", "xbernetes")
}
