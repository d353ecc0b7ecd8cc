// Package filelock lets one process at a time prepare a shared file, such as a download. The kernel frees a lock when
// its process ends, however that happens. The lock file itself stays: removing it would let two processes hold it.
package filelock
