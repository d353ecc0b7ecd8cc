//go:build !linux

package experiment

import "os"

// renameNew renames a folder to a name that does not exist. An empty folder of that name may be replaced, a run never.
func renameNew(dir *os.Root, from, to string) error { return dir.Rename(from, to) }
