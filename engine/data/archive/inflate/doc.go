// Package inflate decodes gzip streams from places within them.
//
// compress/gzip and its kin begin at the beginning. To read one member of a gzip-compressed tar, this package passes
// over the whole stream once and notes restart points, as zran of zlib's examples does: a place in the compressed bits
// where a DEFLATE block begins, and those of the 32 KiB of output before it that the output up to the next point copies
// from. Bytes that nothing copies from are stored as zeros, so that the points of an archive of photographs, which hardly
// repeat themselves, take up little when they are compressed.
//
//	r := inflate.NewReader(f, size)
//	r.Mark(256<<10)
//	io.Copy(io.Discard, r)   // checks every CRC
//	points := r.Points()
//	...
//	r.Restart(points[k])     // the next Read gives the output from points[k].Out on
//
// DEFLATE is RFC 1951, gzip RFC 1952; streams of several members, as bgzip and pigz write them, are one stream. Errors
// are those of damaged input and wrap ErrCorrupt, or io.ErrUnexpectedEOF where the input ends too early.
package inflate
