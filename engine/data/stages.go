package data

import (
	"sync/atomic"
	"time"
)

// Stages adds up the time and bytes of the images that the workers of a Loader read. Times are in nanoseconds. They
// exclude mixing and waiting. Partners from other shares also count as images.
type Stages struct {
	Images       atomic.Int64
	EncodedBytes atomic.Int64
	Read         atomic.Int64 // time to wait for bytes from disk or archive, ns
	Decode       atomic.Int64 // time to decode files to pixels, ns
	Resample     atomic.Int64 // time to crop, resize and flip, ns
	Augment      atomic.Int64
}

// viewTimed is the same as view, but measures the time.
func (w *imageSource) viewTimed(index int, pix []byte) error {
	stages, started := w.stages, time.Now()
	w.img = Image{} // a Reader that decodes nothing leaves the measurements at 0
	if err := w.reader.Read(index, &w.transform, &w.img); err != nil {
		return err
	}
	decoded := time.Now()
	w.transform.cut(pix, &w.img)
	cut := time.Now()
	w.transform.augment(pix)
	end := time.Now()
	stages.Images.Add(1)
	stages.EncodedBytes.Add(int64(w.img.EncodedBytes))
	stages.Read.Add(int64(w.img.Fetched))
	stages.Decode.Add(int64(decoded.Sub(started) - w.img.Fetched))
	stages.Resample.Add(int64(cut.Sub(decoded)))
	stages.Augment.Add(int64(end.Sub(cut)))
	return nil
}
