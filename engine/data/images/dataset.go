package images

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/hetero-train/hetero-train/engine/data"
)

// dataset is one part of the images of a source. All names are in one byte slice, because millions of strings would
// slow down the garbage collector.
type dataset struct {
	src     source
	classes []string
	options DecodeOptions
	names   []byte
	samples []entry
}

// entry locates a sample.
type entry struct {
	nameEnd int64 // end of the name in names; the name starts at the end of the previous name
	offset  int64 // byte offset in a tar
	size    int32 // size in a tar, in bytes
	label   int32
}

func newDataset(src source, list listing, samples []sample, classes []string, o DecodeOptions) *dataset {
	d := &dataset{src: src, classes: classes, options: o, samples: make([]entry, len(samples))}
	for i, s := range samples {
		f := list.files[s.file]
		d.names = append(d.names, f.name...)
		d.samples[i] = entry{int64(len(d.names)), f.offset, int32(f.size), s.label}
	}
	return d
}

func (d *dataset) Len() int          { return len(d.samples) }
func (d *dataset) Classes() []string { return d.classes }
func (d *dataset) Label(i int) int   { return int(d.samples[i].label) }

// file returns the location of sample i. Its name refers to names, which never change.
func (d *dataset) file(i int) file {
	e := d.samples[i]
	start := int64(0)
	if i > 0 {
		start = d.samples[i-1].nameEnd
	}
	return file{unsafe.String(&d.names[start], e.nameEnd-start), e.offset, int64(e.size)}
}

// Describe implements data.Described. The sizes of the files of a folder are unknown.
func (d *dataset) Describe(i int) (name string, bytes int64) { return d.file(i).name, 0 }

func (d *dataset) NewReader() (data.Reader, error) {
	dec, err := NewDecoder(d.options)
	if err != nil {
		return nil, err
	}
	return &reader{d: d, decoder: dec}, nil
}

// reader reads and decodes samples.
type reader struct {
	d        *dataset
	decoder  *Decoder
	contents []byte // contents of the last file read
}

func (r *reader) Close() error {
	r.decoder.Close()
	return nil
}

func (r *reader) Read(i int, sizer data.Sizer, img *data.Image) error {
	f := r.d.file(i)
	err := r.read(f, sizer, img)
	if err != nil {
		return &data.Fault{Op: "read sample", Index: i, Path: f.name, Err: err}
	}
	return nil
}

// Contents implements data.Encoded.
func (r *reader) Contents(i int) ([]byte, error) {
	f := r.d.file(i)
	contents, err := r.d.src.read(f, r.contents)
	if err != nil {
		return nil, &data.Fault{Op: "read sample", Index: i, Path: f.name, Err: err}
	}
	r.contents = contents[:cap(contents)]
	return contents, nil
}

func (r *reader) read(f file, sizer data.Sizer, img *data.Image) (err error) {
	defer func() {
		if p := recover(); p != nil { // a crafted file may make a decoder panic; here its name is known
			err = errors.Join(err, fmt.Errorf("decoder panicked: %v", p))
		}
	}()
	started := time.Now()
	contents, err := r.d.src.read(f, r.contents)
	if err != nil {
		return err
	}
	fetched := time.Since(started)
	r.contents = contents[:cap(contents)]
	err = r.decoder.Decode(contents, sizer, img)
	img.EncodedBytes, img.Fetched, img.Contents = len(contents), fetched, contents
	return err
}
