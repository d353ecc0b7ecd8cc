package images

import (
	"math"

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
	d.Fetcher = data.NewFetcher(mostFetches(), d.Load)
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

func (d *dataset) NewReader() (data.Reader, error) { return NewReader(d, d.options) }

// Load implements Encoded.
func (d *dataset) Load(i int, buf []byte) ([]byte, error) { return d.src.read(d.file(i), buf) }

// Place implements Encoded.
func (d *dataset) Place(i int) string { return d.file(i).name }
