//go:build !linux

package disk

// Allocate makes the file sparse: there is no portable way to reserve blocks.
func (f *osFile) Allocate(size int64) error { return f.Truncate(size) }

// Sync is as strong as the platform has it.
func (f *osFile) Sync() error { return f.File.Sync() }
