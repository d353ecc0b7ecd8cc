package archive

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/zstd"
)

// maxWindow is the largest permitted window of a zstd frame, in bytes. It is the window of zstd --long=27 and the
// default limit of the zstd tool.
const maxWindow = 128 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frames decompresses a zstd file frame by frame. It records the offsets of the frames, because decoding can start only
// at these offsets.
type frames struct {
	r       io.ReaderAt
	size    int64 // size of r in bytes
	start   int64 // offset of this frame in r
	next    int64 // offset of the next frame in r
	given   int64 // number of bytes of this frame returned so far
	decoder *zstd.Decoder
	open    bool // a frame is open
	chunks  []Chunk
	out     int64 // number of bytes returned so far
}

func newFrames(r io.ReaderAt, size int64) (*frames, error) {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow),
		zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, err
	}
	return &frames{r: r, size: size, decoder: d}, nil
}

func (f *frames) close() { f.decoder.Close() }

func (f *frames) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		if !f.open {
			if err := f.begin(); err != nil {
				return 0, err
			}
			continue
		}
		n, err := f.decoder.Read(p)
		if n > 0 {
			f.note(p[:n])
		}
		if err == io.EOF {
			f.open, err = false, f.checkSize()
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// note records the bytes in out, which were decompressed from the current frame. A frame is added to a chunk at its
// first output, so a chunk contains no empty frames.
func (f *frames) note(out []byte) {
	if n := len(f.chunks); f.given == 0 && (n == 0 || f.out-f.chunks[n-1].Out >= chunkBytes ||
		f.start-f.chunks[n-1].In >= storedBytes) {
		f.chunks = append(f.chunks, Chunk{Out: f.out, In: f.start})
	}
	last := &f.chunks[len(f.chunks)-1]
	last.End = f.next
	last.Sum = crc32.Update(last.Sum, castagnoli, out)
	f.given += int64(len(out))
	f.out += int64(len(out))
}

// checkSize refuses a frame whose stored size far exceeds the size of its content, because Random reads a whole chunk
// for each sample.
func (f *frames) checkSize() error {
	if stored, most := f.next-f.start, 2*f.given+storedBytes; stored > most {
		return fmt.Errorf(
			"zstd frame at byte %d: got %d compressed bytes that contain %d bytes of data, want at most %d: %w",
			f.start, stored, f.given, most, ErrRefused)
	}
	return nil
}

// begin opens the next frame that contains data. It returns io.EOF if there is no such frame.
func (f *frames) begin() error {
	for f.next < f.size {
		end, skippable, err := frameEnd(f.r, f.size, f.next)
		if err != nil {
			return fmt.Errorf("zstd frame at byte %d: %w", f.next, err)
		}
		f.start, f.next = f.next, end
		if skippable {
			continue
		}
		f.open, f.given = true, 0
		return f.decoder.Reset(io.NewSectionReader(f.r, f.start, end-f.start))
	}
	return io.EOF
}

// frameEnd finds the end of the frame at start, from the headers of its blocks (RFC 8878, section 3.1.1).
func frameEnd(r io.ReaderAt, size, start int64) (end int64, skippable bool, err error) {
	var head [zstd.HeaderMaxSize]byte
	n, err := r.ReadAt(head[:min(int64(len(head)), size-start)], start)
	if err != nil && err != io.EOF {
		return 0, false, err
	}
	var h zstd.Header
	if err := h.Decode(head[:n]); err != nil {
		return 0, false, err
	}
	if h.Skippable {
		end = start + int64(h.HeaderSize) + int64(h.SkippableSize)
	} else {
		end, err = blocksEnd(r, size, start+int64(h.HeaderSize))
		if h.HasCheckSum {
			end += 4
		}
	}
	if err == nil && end > size {
		err = io.ErrUnexpectedEOF
	}
	return end, h.Skippable, err
}

func blocksEnd(r io.ReaderAt, size, at int64) (int64, error) {
	for {
		var b [3]byte
		if at+3 > size {
			return 0, io.ErrUnexpectedEOF
		}
		if _, err := r.ReadAt(b[:], at); err != nil && err != io.EOF {
			return 0, err
		}
		v := int64(b[0]) | int64(b[1])<<8 | int64(b[2])<<16
		length := v >> 3
		switch v >> 1 & 3 {
		case 1:
			length = 1 // the block contains a single byte, which is repeated
		case 3:
			return 0, errors.New("zstd block of a reserved type")
		}
		at += 3 + length
		if v&1 != 0 {
			return at, nil
		}
	}
}
