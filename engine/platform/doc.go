// Package platform contains operations that need different code on Linux, macOS and Windows. They are file locks,
// memory maps, durable folders, process groups, signals, CPU time, limits and the description of the machine.
//
//	err := platform.TryLock(file)            // ErrLocked: another process holds the lock
//	mapped, err := platform.Map(file, bytes) // Unmap releases it
//	err = platform.SyncDir(folder)           // after a rename
//
// The code for each system is in files named *_unix.go, *_linux.go, *_darwin.go, *_windows.go or *_other.go. An
// operation that a system lacks returns an error that wraps errors.ErrUnsupported, or ok = false. It may do nothing
// without an error only if the results of the program do not depend on it.
package platform
