// Package archive reads tar archives of unknown origin without extracting them.
//
// Index lists the regular files of a plain tar with the place of their contents, so that members are read at random
// with ReadAt. Plain turns a gzip-compressed tar into a plain one in a cache folder, once. Walk passes over a stream.
//
// Refused, with an error that names the member: absolute names, names with a ".." part, a backslash or a NUL; symbolic
// and hard links, devices, pipes, sparse files; members and archives over the Limits. Nothing is ever written under a
// name that comes from an archive.
package archive
