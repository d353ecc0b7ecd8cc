// Package platform contains the operations whose form differs between Linux, macOS and Windows: locks of files, memory
// maps, durable folders, process groups, signals, CPU time, limits and the description of the machine.
//
//	err := platform.TryLock(file)            // ErrLocked: another process holds the lock
//	mapped, err := platform.Map(file, bytes) // Unmap releases it
//	err = platform.SyncDir(folder)           // after a rename
//
// Each form has a file: *_unix.go, *_linux.go, *_darwin.go, *_windows.go or *_other.go. An operation that a system
// lacks returns an error that wraps errors.ErrUnsupported, or ok = false. An operation that affects a result never
// silently does nothing.
package platform
