package huggingface

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/images"
	"github.com/hetero-train/hetero-train/engine/data/layout"
	"github.com/hetero-train/hetero-train/engine/data/openfiles"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// source are the files of both parts of a data set.
type source struct {
	*openfiles.Pool
	follow  bool // paths of images may lead out of their folder
	decode  images.DecodeOptions
	classes []string
	labels  []int32          // class of each number of entry.label; nil: the number is the class
	files   []openfiles.File // the files themselves, or copies of their columns
	origins []string         // paths of the files
	folders []string         // folder of the data set of each file; relative paths of images start there
	paths   []byte           // paths of images, one after another
}

// dataset is one part of a data set.
type dataset struct {
	*source
	samples []entry
}

// entry locates the image of a row.
type entry struct {
	offset int64 // byte offset in the file, or in source.paths
	size   int32 // bytes; negative: the length of a path; 0: there is no image
	label  int32
	file   int32
	row    int32 // in the file
}

func (d *dataset) Len() int          { return len(d.samples) }
func (d *dataset) Classes() []string { return d.classes }

func (d *dataset) Label(i int) int {
	label := d.samples[i].label
	if d.labels != nil {
		label = d.labels[label]
	}
	return int(label)
}

// Describe implements data.Described.
func (d *dataset) Describe(i int) (name string, bytes int64) {
	e := d.samples[i]
	return fmt.Sprintf("%s!%d", filepath.Base(d.origins[e.file]), e.row), int64(max(e.size, 0))
}

func (d *dataset) NewReader() (data.Reader, error) {
	dec, err := images.NewDecoder(d.decode)
	if err != nil {
		return nil, err
	}
	return &reader{d: d, decoder: dec}, nil
}

// reader reads and decodes samples.
type reader struct {
	d        *dataset
	decoder  *images.Decoder
	contents []byte // of the last image read
}

func (r *reader) Close() error {
	r.decoder.Close()
	return nil
}

func (d *dataset) fault(i int, err error) error {
	e := d.samples[i]
	place := fmt.Sprintf("%s!row %d", d.origins[e.file], e.row)
	if e.size < 0 {
		place += "!" + string(d.paths[e.offset:][:-e.size])
	}
	return &data.Fault{Op: "read sample", Index: i, Path: place, Err: err}
}

func (r *reader) Read(i int, sizer data.Sizer, img *data.Image) error {
	if err := r.read(r.d.samples[i], sizer, img); err != nil {
		return r.d.fault(i, err)
	}
	return nil
}

// Contents implements data.Encoded.
func (r *reader) Contents(i int) ([]byte, error) {
	contents, err := r.contentsOf(r.d.samples[i])
	if err != nil {
		return nil, r.d.fault(i, err)
	}
	return contents, nil
}

func (r *reader) read(e entry, sizer data.Sizer, img *data.Image) error {
	return r.decoder.Read(func() ([]byte, time.Duration, error) {
		started := time.Now()
		contents, err := r.contentsOf(e)
		return contents, time.Since(started), err
	}, sizer, img)
}

func (r *reader) buffer(n int) []byte {
	if cap(r.contents) < n {
		r.contents = make([]byte, n+n/4)
	}
	return r.contents[:n]
}

func (r *reader) contentsOf(e entry) (contents []byte, err error) {
	s := r.d.source
	switch {
	case e.size == 0:
		return nil, errors.New("the row has no image")
	case e.size < 0:
		in, info, err := s.openPath(e.file, string(s.paths[e.offset:][:-e.size]))
		if err != nil {
			return nil, err
		}
		defer in.Close() // read only
		if info.Size() > images.MaxFileBytes {
			return nil, fmt.Errorf("%d bytes, want at most %d", info.Size(), images.MaxFileBytes)
		}
		contents = r.buffer(int(info.Size()))
		_, err = io.ReadFull(in, contents)
		return contents, err
	}
	h, err := s.Take(int(e.file))
	if err != nil {
		return nil, err
	}
	defer s.GiveBack(h)
	contents = r.buffer(int(e.size))
	_, err = h.ReadAt(contents, e.offset)
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("the file became shorter after it was opened: %w", io.ErrUnexpectedEOF)
	}
	return contents, err
}

// addFile adds a file of rows of the data set at base. stored is the file itself, or the copy of its images.
func (s *source) addFile(base, path string, stored openfiles.File) {
	if info, err := os.Stat(base); err == nil && !info.IsDir() {
		base = filepath.Dir(base)
	}
	s.files = append(s.files, stored)
	s.origins = append(s.origins, path)
	s.folders = append(s.folders, base)
}

// within returns the folder of a file as a path that openPath accepts.
func (s *source) within(file int32) (string, error) {
	folder := filepath.Dir(s.origins[file])
	if within, err := filepath.Rel(s.folders[file], folder); err == nil {
		return within, nil
	}
	return filepath.Abs(folder)
}

// openPath opens the image of a row of a file.
func (s *source) openPath(file int32, name string) (*os.File, os.FileInfo, error) {
	base := s.folders[file]
	if s.follow {
		if !filepath.IsAbs(name) {
			name = filepath.Join(base, filepath.FromSlash(name))
		}
		return regular.Open(name)
	}
	if !filepath.IsLocal(filepath.FromSlash(name)) {
		return nil, nil, fmt.Errorf("the path leads out of the folder %s: copy the image into the folder, or set %s = true",
			base, layout.FollowKey)
	}
	folder, err := layout.OpenFolder(base, false)
	if err != nil {
		return nil, nil, err
	}
	defer folder.Close() // read only
	return folder.Open(filepath.ToSlash(name))
}

func statOf(path string) (openfiles.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return openfiles.File{}, err
	}
	return openfiles.Of(path, info), nil
}
