// Package filelock provides a lock on a file, so that only one process at a time prepares a shared file such as a
// download. When a process ends for any reason, the kernel releases its locks. The lock file is never removed,
// because after a removal two processes could hold the lock at the same time.
package filelock
