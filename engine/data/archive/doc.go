// Package archive reads untrusted tar archives without extracting them.
//
//   - Scan reads a plain or zstd-compressed tar once, lists its regular files, and returns a Layout for reading any
//     part.
//   - Index lists the regular files of a plain tar with the offsets of their contents, for ReadAt.
//   - Plain expands a compressed tar into a plain tar in a cache folder, once.
//   - Walk reads an archive as a stream, once.
//
// The package refuses dangerous members with an error that names the member. It refuses absolute names, names with a
// ".." part, a backslash or a NUL, links, devices, pipes and sparse files. It also refuses members and archives that
// exceed the Limits. The package never writes a file under a name that comes from an archive.
package archive
