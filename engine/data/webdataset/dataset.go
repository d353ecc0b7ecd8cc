package webdataset

import (
	"unsafe"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/archive"
	"github.com/hetero-train/hetero-train/engine/data/encoded"
	"github.com/hetero-train/hetero-train/engine/data/images"
	"github.com/hetero-train/hetero-train/engine/data/openfiles"
	"github.com/hetero-train/hetero-train/engine/data/stored"
)

// source contains the shards of both parts of a data set.
type source struct {
	*openfiles.Pool
	shards  []identity
	layouts []*archive.Layout
	random  *archive.Random
	decode  images.DecodeOptions
}

// dataset is one part of a data set. All names are in one byte slice, because millions of strings would slow down the
// garbage collector.
type dataset struct {
	src           *source
	classes       []string
	names         []byte
	samples       []entry
	*data.Fetcher // nil: the shards are on local storage and are read on demand
}

// fetchAhead sets the Fetcher if shards are in object storage.
func (d *dataset) fetchAhead() {
	for _, id := range d.src.shards {
		if stored.Remote(id.path) {
			d.Fetcher = data.NewFetcher(stored.FetchesAtOnce, d.Load)
			return
		}
	}
}

// entry locates a sample.
type entry struct {
	nameEnd int64 // end of the name in names; the name starts at the end of the previous name
	offset  int64 // byte offset in the plain tar
	size    int32 // size in bytes
	label   int32
	shard   int32
}

func (d *dataset) add(shard int, x *index, i int, label int32) {
	d.names = append(append(append(d.names, x.Keys[i]...), '.'), x.Ends[i]...)
	d.samples = append(d.samples, entry{int64(len(d.names)), x.Offsets[i], x.Sizes[i], label, int32(shard)})
}

func (d *dataset) Len() int          { return len(d.samples) }
func (d *dataset) Classes() []string { return d.classes }
func (d *dataset) Label(i int) int   { return int(d.samples[i].label) }

// name returns the name of sample i's image. The string refers to d.names, which never changes.
func (d *dataset) name(i int) string {
	start := int64(0)
	if i > 0 {
		start = d.samples[i-1].nameEnd
	}
	return unsafe.String(&d.names[start], d.samples[i].nameEnd-start)
}

// Describe implements data.Described.
func (d *dataset) Describe(i int) (name string, bytes int64) {
	return d.name(i), int64(d.samples[i].size)
}

func (d *dataset) NewReader() (data.Reader, error) { return encoded.NewReader(d, d.src.decode) }

// Load implements encoded.Images.
func (d *dataset) Load(i int, buf []byte) ([]byte, error) {
	e := d.samples[i]
	if cap(buf) < int(e.size) {
		buf = make([]byte, e.size+e.size/4)
	}
	return buf[:e.size], d.src.read(e, buf[:e.size])
}

// Place implements encoded.Images.
func (d *dataset) Place(i int) string { return d.src.shards[d.samples[i].shard].path + "!" + d.name(i) }

func (s *source) read(e entry, contents []byte) error {
	h, err := s.Take(int(e.shard))
	if err != nil {
		return err
	}
	defer s.GiveBack(h)
	return s.random.ReadAt(int(e.shard), h, s.layouts[e.shard], contents, e.offset)
}
