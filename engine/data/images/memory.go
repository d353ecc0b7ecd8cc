package images

import "sync/atomic"

// PlannedBytes is the memory of a Decoder for typical photographs: 800 x 600 decoded pixels and 0.5 MB of file. The
// account of a rank contains it for each Decoder. JPEG images are decoded near the size that training needs, so most
// Decoders stay below it also for photographs of 12 megapixels.
const PlannedBytes = 2 << 20

var memory struct{ now, most atomic.Int64 }

// DecoderBytes returns the memory of all open Decoders of this process: their buffers, the files in them and the
// buffers of libraries for the last image. most is the largest sum since the program started.
func DecoderBytes() (now, most int64) { return memory.now.Load(), memory.most.Load() }

// count sets the memory of this Decoder.
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
