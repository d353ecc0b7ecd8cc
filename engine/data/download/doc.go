// Package download downloads a file of known SHA-256 into a folder.
//
// An interrupted download leaves the file NAME.part, and the next download continues it (HTTP Range). The file is
// renamed to NAME when it is complete, has the expected hash and is flushed to disk. If several processes need the same
// file, one process downloads it and the other processes wait.
//
// Errors:
//
//   - ErrUnavailable: the file cannot be downloaded (no connection, no reply in time, refused by the server). The
//     caller may use another source.
//   - ErrMismatch: the server sends a different file
//   - any other error: an error of the local disk
package download
