//go:build !linux

package experiment

import "os"

// renameNew renames a folder. It may replace an empty folder with the new name, but never a run.
func renameNew(dir *os.Root, from, to string) error { return dir.Rename(from, to) }
