//go:build !linux

package experiment

import "os"

// renameNew renames a folder to a name that does not exist. It may replace an empty folder of that name, but never a
// run.
func renameNew(dir *os.Root, from, to string) error { return dir.Rename(from, to) }
