// Package filelock provides a lock on a file, so that only one process at a time prepares a shared file such as a
// download. When a process ends for any reason, the kernel releases its locks. The package never removes a lock file,
// because two processes could then hold the lock at the same time. A caller that removes lock files must tolerate this.
package filelock
