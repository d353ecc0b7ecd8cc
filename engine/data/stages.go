package data

import (
	"sync/atomic"
	"time"
)

// Stages accumulates the cost of images in a Loader's workers, in nanoseconds, without mixing and waiting. Partners
// from outside the share count as images.
type Stages struct {
	Images       atomic.Int64
	EncodedBytes atomic.Int64
	Read         atomic.Int64 // from disk or archive
	Decode       atomic.Int64 // from file to pixels
	Resample     atomic.Int64 // crop, resize, flip
	Augment      atomic.Int64
}

// viewTimed is view with a clock.
func (w *imageSource) viewTimed(index int, pix []byte) error {
	stages, started := w.stages, time.Now()
	w.img = Image{} // a Reader that decodes nothing leaves the measurements unchanged
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
