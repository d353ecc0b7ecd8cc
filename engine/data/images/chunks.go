package images

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"iter"
)

// pngStart is the start of each PNG image.
const pngStart = "\x89PNG\r\n\x1a\n"

// pngChunk is a chunk of a PNG image.
type pngChunk struct {
	kind     string
	contents []byte
	whole    []byte // including length, kind and checksum
}

// chunks returns the complete chunks of a PNG image, without its end chunk. It does not check their checksums.
func chunks(b []byte) iter.Seq[pngChunk] {
	return func(yield func(pngChunk) bool) {
		for at := len(pngStart); at+8 <= len(b); {
			length, kind := int64(binary.BigEndian.Uint32(b[at:])), string(b[at+4:at+8])
			end := int64(at) + 12 + length
			if kind == "IEND" || end > int64(len(b)) || !yield(pngChunk{kind, b[at+8 : end-4], b[at:end]}) {
				return
			}
			at = int(end)
		}
	}
}

// pixelsOnly returns a PNG image with only those chunks that determine the pixels, and with an end chunk. Faults in
// other chunks, or after the pixels, then have no effect. The pixel data has its own checksum, which reveals missing
// pixels.
func pixelsOnly(b []byte) []byte {
	bare := []byte(pngStart)
	for c := range chunks(b) {
		if c.kind == "IHDR" || c.kind == "PLTE" || c.kind == "IDAT" {
			bare = append(bare, c.whole...)
		}
	}
	end := append(bytes.Repeat([]byte{0}, 4), "IEND"...)
	return binary.BigEndian.AppendUint32(append(bare, end...), crc32.ChecksumIEEE(end[4:]))
}
