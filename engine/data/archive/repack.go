package archive

import (
	"context"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/hetero-train/hetero-train/engine/data/archive/inflate"
)

// repackBytes is the size of the frames that Repack makes.
const repackBytes = 1 << 20

// Repack writes the tar in r, of size bytes, compressed or not, to w as zstd frames of 1 MiB, so that it can be read at
// random. It returns the size of the plain tar.
func Repack(ctx context.Context, r io.ReaderAt, size int64, w io.Writer, progress func(done, total int64)) (int64, error) {
	limits := Limits{}.withDefaults()
	in := &counterAt{at: r, counter: counter{stopped: ctx.Err, total: size, progress: progress}}
	compression, err := Detect(r)
	if err != nil {
		return 0, err
	}
	var plain io.Reader = io.NewSectionReader(in, 0, size)
	switch compression {
	case Gzip:
		plain = inflate.NewReader(in, size)
	case Zstd:
		z, err := newFrames(in, size)
		if err != nil {
			return 0, err
		}
		defer z.close()
		plain = z
	}
	bounded := &bound{r: plain, in: &in.counter, limits: limits}
	e, err := zstd.NewWriter(nil, zstd.WithEncoderCRC(true), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return 0, err
	}
	defer e.Close()
	frame, packed := make([]byte, repackBytes), []byte(nil)
	for {
		n, err := fill(bounded, frame)
		if n > 0 {
			packed = e.EncodeAll(frame[:n], packed[:0])
			if _, err := w.Write(packed); err != nil {
				return bounded.n, fmt.Errorf("write: %w", err)
			}
		}
		if err == io.EOF {
			return bounded.n, nil
		}
		if err != nil {
			return bounded.n, err
		}
	}
}

// fill reads until p is full or r ends. Unlike io.ReadFull it leaves the reader's own error, so that a stream that ends
// too early is not taken for its end.
func fill(r io.Reader, p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var k int
		k, err = r.Read(p[n:])
		n += k
	}
	return n, err
}
