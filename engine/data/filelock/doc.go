// Package filelock lets one process at a time prepare a shared file, such as a download. The kernel releases the lock
// of a process that ends for any reason. The lock file is never removed: after a removal, two processes could hold the
// lock at the same time.
package filelock
