//go:build !cgo || !linux

package memory

// OneArena reports whether malloc has one arena for all threads.
func OneArena() bool { return false }
