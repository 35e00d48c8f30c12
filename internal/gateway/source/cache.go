package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/privatefile"
)

// Memory is what a gateway knew when it last ran. It holds no secret.
type Memory struct {
	// Servers are the servers that the gateway served.
	Servers []*v1alpha1.RemoteAPIServer `json:"servers"`
	// Held names the holder of each group.
	Held map[string]string `json:"held"`
}

// Recall reads the memory that Remember wrote; an empty one if there is no such file.
func Recall(file string) (Memory, error) {
	var m Memory
	content, err := readFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		err = json.Unmarshal(content, &m)
	}
	if err != nil {
		return Memory{}, fmt.Errorf("read cache file %s: %w; delete it to start without", file, err)
	}
	for _, s := range m.Servers {
		if s == nil {
			return Memory{}, fmt.Errorf("read cache file %s: it lists a server that is null; delete it to start without", file)
		}
	}
	m.Servers = firstServers(m.Servers)
	return m, nil
}

// Remember writes a memory to a file, as a whole or not at all.
func Remember(file string, m Memory) error {
	content, err := json.Marshal(m)
	if err == nil {
		err = privatefile.Write(file, content)
	}
	if err != nil {
		return fmt.Errorf("write cache file %s: %w", file, err)
	}
	return nil
}
