// Package download fetches a file of known SHA-256 into a folder.
//
// An interrupted download leaves NAME.part, from which the next one goes on (HTTP Range). The file appears under its own
// name only when it is complete, its hash is right and it is on disk. Processes that want the same file wait for the one
// that loads it.
//
// Errors: ErrUnavailable when the file cannot be had (no connection, no answer in time, refused by the server), so that
// a caller may fall back; ErrMismatch when the server sends another file than expected; others are local (disk).
package download
