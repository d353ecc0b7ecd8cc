//go:build !cgo || !linux

package memory

// OneArena reports whether malloc has one arena for all threads.
func OneArena() bool { return false }

// ThreadStack returns the bytes of addresses that the stack of a thread takes, or 0 if they are unknown.
func ThreadStack() int64 { return 0 }
