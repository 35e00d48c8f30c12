package peers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/xbernetes/xbernetes/internal/kubeconfig"
)

const (
	// settle is how long a folder must be unchanged before it is read, because a file
	// is written in steps.
	settle = 100 * time.Millisecond
	// poll is how often the folder is read even if no change was reported, because
	// some file systems report none.
	poll = 10 * time.Second
	// tooLarge is more bytes than any kubeconfig has.
	tooLarge = 1 << 20
)

// Folder finds a peer in each file of a folder. The peer's name is the file's, without
// .yaml, .yml, .conf, .config or .kubeconfig. Files whose names begin with a dot are
// ignored. If a file can no longer be read, its peer stays as it was.
func Folder(path string) Source { return &folder{path: path} }

// Files finds one peer in each file, by the peer's name, and follows changes of the files.
// A value is PATH or PATH#CONTEXT.
func Files(byName map[string]string) Source { return &folder{files: byName} }

type folder struct {
	path  string
	files map[string]string
}

func (f *folder) Run(ctx context.Context, found func([]Peer)) error {
	last := f.read(nil)
	found(last)
	var events chan fsnotify.Event // nil if the system cannot report changes: receiving then blocks
	var faults chan error
	w, err := fsnotify.NewWatcher()
	if err == nil {
		defer func() { _ = w.Close() }()
		events, faults = w.Events, w.Errors
	}
	polls := time.NewTicker(poll)
	defer polls.Stop()
	for {
		if w != nil {
			f.watch(w)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-events:
			if !quiet(ctx, events) {
				return nil
			}
		case lost := <-faults:
			_ = lost // everything is read now, so a change that was not reported is found
		case <-polls.C:
		}
		now := f.read(last)
		if !same(last, now) {
			last = now
			found(now)
		}
	}
}

// watch watches the folders that exist. It is called again and again, so that folders
// created later are watched too.
func (f *folder) watch(w *fsnotify.Watcher) {
	dirs := map[string]bool{}
	if f.path != "" {
		dirs[f.path] = true
	}
	for _, file := range f.files {
		path, _, _ := strings.Cut(file, "#")
		dirs[filepath.Dir(path)] = true
	}
	for dir := range dirs {
		_ = w.Add(dir) // a folder that cannot be watched is polled
	}
}

// quiet waits until no event has come for a while. It returns false if ctx ends first.
func quiet(ctx context.Context, events <-chan fsnotify.Event) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-events:
		case <-time.After(settle):
			return true
		}
	}
}

// read reads all files anew. before is the result of the last read.
func (f *folder) read(before []Peer) []Peer {
	var peers []Peer
	for name, file := range f.files {
		path, context, _ := strings.Cut(file, "#")
		peers = append(peers, keep(before, readFile(name, path, context)))
	}
	if f.path == "" {
		return peers
	}
	entries, err := os.ReadDir(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return peers
	}
	if err != nil {
		// A folder that cannot be read is not an empty one: the peers in it stay.
		for _, p := range before {
			if filepath.Dir(p.Origin) == filepath.Clean(f.path) {
				peers = append(peers, p)
			}
		}
		return append(peers, Peer{Name: filepath.Base(f.path), Origin: f.path, Unread: before == nil, Err: fmt.Errorf("read folder of kubeconfigs: %w", err)})
	}
	for _, e := range entries {
		path := filepath.Join(f.path, e.Name())
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			continue
		}
		peers = append(peers, keep(before, readFile(stem(e.Name()), path, "")))
	}
	return peers
}

func readFile(name, path, context string) Peer {
	info, err := os.Stat(path)
	if err == nil && info.Size() > tooLarge {
		err = fmt.Errorf("%s is no kubeconfig: it has %d bytes", path, info.Size())
	}
	if err != nil {
		return Peer{Name: name, Origin: path, Err: err}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return Peer{Name: name, Origin: path, Err: err}
	}
	return parse(name, path, data, context, kubeconfig.Full)
}

// keep returns p, or, if p has a fault now but had a connection before, the earlier peer
// with the new fault.
func keep(before []Peer, p Peer) Peer {
	if p.Err == nil {
		return p
	}
	for _, b := range before {
		if b.Name == p.Name && b.Config != nil {
			b.Err = fmt.Errorf("%w; going on with what it said before", p.Err)
			return b
		}
	}
	return p
}

// stem returns a file's name without the extension of a kubeconfig.
func stem(file string) string {
	switch ext := filepath.Ext(file); ext {
	case ".yaml", ".yml", ".conf", ".config", ".kubeconfig":
		return strings.TrimSuffix(file, ext)
	}
	return file
}

// same reports whether two results name the same peers with the same connections and
// faults.
func same(a, b []Peer) bool {
	essence := func(peers []Peer) map[string]string {
		m := make(map[string]string, len(peers))
		for _, p := range peers {
			m[p.Name+"\n"+p.Origin] = fmt.Sprint(p.Fingerprint, p.Err)
		}
		return m
	}
	return reflect.DeepEqual(essence(a), essence(b))
}
