package images

import (
	"math"
	"time"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/platform"
)

// dataset is one part of the images of a source.
type dataset struct {
	src     source
	classes []string
	options DecodeOptions
	list    listing
	samples []sample
	*data.Fetcher
}

func newDataset(src source, list listing, samples []sample, classes []string, o DecodeOptions) *dataset {
	list.folders, list.heldClasses = nil, nil // only arrange needs these
	d := &dataset{src: src, classes: classes, options: o, list: list, samples: samples}
	d.Fetcher = data.NewFetcher(mostFetches(), func(i int, buf []byte) ([]byte, error) {
		return src.read(d.file(i), buf)
	})
	return d
}

// mostFetches returns the largest number of fetches in flight. It is a quarter of the limit of open files, because
// other parts of the program also open files. 0: no limit.
func mostFetches() int {
	limit, ok := platform.FileLimit()
	if !ok {
		return 0
	}
	return int(min(max(limit/4, 1), math.MaxInt32))
}

func (d *dataset) Len() int          { return len(d.samples) }
func (d *dataset) Classes() []string { return d.classes }
func (d *dataset) Label(i int) int   { return int(d.samples[i].label) }

// file returns the location of sample i.
func (d *dataset) file(i int) file { return d.list.file(d.samples[i].file) }

// Describe implements data.Described. The sizes of the files of a folder are unknown.
func (d *dataset) Describe(i int) (name string, bytes int64) { return d.file(i).name, 0 }

func (d *dataset) NewReader() (data.Reader, error) {
	dec, err := NewDecoder(d.options)
	if err != nil {
		return nil, err
	}
	return &reader{d: d, decoder: dec, fetches: d.Open()}, nil
}

// reader reads and decodes samples.
type reader struct {
	d       *dataset
	decoder *Decoder
	fetches *data.Fetches
	stored  []byte // buffer of Contents
}

func (r *reader) Close() error {
	r.decoder.Close()
	r.fetches.Close()
	return nil
}

func (r *reader) Read(i int, sizer data.Sizer, img *data.Image) error {
	f := r.d.file(i)
	err := r.read(i, sizer, img)
	if err != nil {
		return &data.Fault{Op: "read sample", Index: i, Path: f.name, Err: err}
	}
	return nil
}

// Contents implements data.Encoded. It does not use the Fetcher, because the comparison of machines reads other samples
// at its own pace.
func (r *reader) Contents(i int) ([]byte, error) {
	f := r.d.file(i)
	contents, err := r.d.src.read(f, r.stored)
	if err != nil {
		return nil, &data.Fault{Op: "read sample", Index: i, Path: f.name, Err: err}
	}
	r.stored = contents[:cap(contents)]
	return contents, nil
}

func (r *reader) read(i int, sizer data.Sizer, img *data.Image) error {
	return r.decoder.Read(func() ([]byte, time.Duration, error) { return r.fetches.Read(i) }, sizer, img)
}
