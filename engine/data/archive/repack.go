package archive

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// repackBytes is the content size, in bytes, of the frames that Repack writes.
const repackBytes = 1 << 20

// ErrWrite is in the error chain if writing the output of Repack failed, but not if reading the input failed.
var ErrWrite = errors.New("write")

// Repack writes the tar in r to w as zstd frames of 1 MiB, which permit random access. The input may be compressed. The
// parameter size is its size in bytes. Repack returns the size of the plain tar in bytes. It returns an error if the
// input is not a tar, or if Scan would refuse it.
func Repack(ctx context.Context, r io.ReaderAt, size int64, w io.Writer, progress func(done, total int64)) (int64,
	error) {
	limits := Limits{MemberBytes: defaultTotalBytes}.withDefaults() // a default limit is only for readers of the output
	in := newCounterAt(ctx, r, size, progress)
	plain, free, err := decompress(in, size)
	if err != nil {
		return 0, err
	}
	defer free()
	e, err := zstd.NewWriter(nil, zstd.WithEncoderCRC(true), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return 0, err
	}
	defer e.Close()
	out := &framer{w: w, encoder: e, frame: make([]byte, 0, repackBytes)}
	total, _, err := scanStream(io.TeeReader(plain, out), in, limits, func(Member, io.Reader) error { return nil })
	if err == nil {
		err = out.flush()
	}
	return total, err
}

// framer compresses its input into frames.
type framer struct {
	w             io.Writer
	encoder       *zstd.Encoder
	frame, packed []byte
}

// Write implements io.Writer.
func (f *framer) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(len(rest), repackBytes-len(f.frame))
		f.frame, rest = append(f.frame, rest[:n]...), rest[n:]
		if len(f.frame) == repackBytes {
			if err := f.flush(); err != nil {
				return 0, err
			}
		}
	}
	return len(p), nil
}

// flush ends the current frame.
func (f *framer) flush() error {
	if len(f.frame) == 0 {
		return nil
	}
	f.packed = f.encoder.EncodeAll(f.frame, f.packed[:0])
	f.frame = f.frame[:0]
	if _, err := f.w.Write(f.packed); err != nil {
		return fmt.Errorf("%w: %w", ErrWrite, err)
	}
	return nil
}
