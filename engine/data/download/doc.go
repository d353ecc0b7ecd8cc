// Package download downloads a file of known SHA-256 into a folder.
//
// An interrupted download leaves NAME.part, which the next download continues (HTTP Range). The file gets its own name
// only when it is complete, has the right hash and is on disk. Processes that need the same file wait for the one that
// downloads it.
//
// Errors:
//
//   - ErrUnavailable: the file cannot be downloaded (no connection, no reply in time, refused by the server), so
//     that a caller may fall back
//   - ErrMismatch: the server sends a different file
//   - other errors are local (disk)
package download
