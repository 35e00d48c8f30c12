package usage

import (
	"os"
	"path/filepath"
)

// DataDir is where one user's server keeps its things: below
// $XDG_DATA_HOME, or ~/.local/share; "" if there is no home.
func DataDir() string {
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "xbernetes")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "share", "xbernetes")
}
