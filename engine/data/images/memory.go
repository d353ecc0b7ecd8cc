package images

import "sync/atomic"

var memory struct{ now, most atomic.Int64 }

// DecoderBytes returns the memory of all open Decoders of this process: their buffers, and those of libraries while
// they decode an image. It does not include encoded files. The result most is the largest value since
// RestartDecoderBytes.
func DecoderBytes() (now, most int64) { return memory.now.Load(), memory.most.Load() }

// RestartDecoderBytes resets the largest value of DecoderBytes to the present value.
func RestartDecoderBytes() { memory.most.Store(memory.now.Load()) }

// count sets the memory that DecoderBytes includes for this Decoder.
func (d *Decoder) count(bytes int64) {
	now := memory.now.Add(bytes - d.counted)
	d.counted = bytes
	for {
		most := memory.most.Load()
		if now <= most || memory.most.CompareAndSwap(most, now) {
			return
		}
	}
}

// held returns the memory of the buffers.
func (d *Decoder) held() int64 {
	return int64(cap(d.pix) + cap(d.turned) + cap(d.upright) + cap(d.packed) + cap(d.rows))
}

// keptBytes is the largest buffer of compressed pixels, or of rows, that a Decoder keeps for the next image. One large
// image must not raise the memory of each worker for the whole run.
const keptBytes = 16 << 20

// release frees each buffer that is larger than most bytes, unless a decoded image refers to it.
func (d *Decoder) release(most int) {
	if cap(d.packed) > most {
		d.packed = nil
	}
	if cap(d.rows) > most {
		d.rows = nil
	}
	d.inflater.in = nil
}

// finish counts the memory of an image that has been decoded, and frees large buffers. A file that cannot be decoded
// must not determine the memory of the run, so all its large buffers are freed.
func (d *Decoder) finish(failed bool) {
	d.count(d.held() + d.library)
	d.library = 0
	d.release(keptBytes)
	if failed {
		for _, buf := range []*[]byte{&d.pix, &d.turned, &d.upright} {
			if cap(*buf) > keptBytes {
				*buf = nil
			}
		}
	}
	d.count(d.held())
}

// useLibrary counts the memory of a library while it decodes the current image.
func (d *Decoder) useLibrary(bytes int64) {
	d.library = bytes
	d.count(d.held() + bytes)
}

// Largest ratios of decompressed to compressed bytes. Headers that promise more are refused before a buffer is
// allocated: two Deflate codes of 1 bit give up to 258 bytes, and an LZW code of 12 bits less than 4,096.
const (
	mostDeflate = 1032
	mostLZW     = 2731
)
