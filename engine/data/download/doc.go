// Package download downloads a file, whose SHA-256 is known, into a folder.
//
// An interrupted download leaves the file NAME.part, and the next download continues it (HTTP Range). The file gets its
// final name only when it is complete, has the right hash and is flushed to the disk. If several processes need the
// same file, one downloads it and the others wait.
//
// Errors:
//
//   - ErrUnavailable: the file cannot be downloaded (no connection, no reply in time, refused by the server); the
//     caller may use another source instead
//   - ErrMismatch: the server sends a different file
//   - other errors come from the local disk
package download
