package huggingface

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/encoded"
	"github.com/hetero-train/hetero-train/engine/data/images"
	"github.com/hetero-train/hetero-train/engine/data/layout"
	"github.com/hetero-train/hetero-train/engine/data/openfiles"
	"github.com/hetero-train/hetero-train/engine/data/stored"
)

// source contains the files of both parts of a data set.
type source struct {
	*openfiles.Pool
	follow  bool // paths of images may lead out of the data set's folder
	decode  images.DecodeOptions
	classes []string
	labels  []int32          // maps entry.label to a class; nil: entry.label is the class
	files   []openfiles.File // the data files, or copies of their image columns
	origins []string         // paths of the files
	folders []string         // folder of the data set of each file; relative paths of images refer to it
	paths   []byte           // concatenated paths of images
}

// dataset is one part of a data set.
type dataset struct {
	*source
	samples       []entry
	*data.Fetcher // nil: the images are on local storage and are read on demand
}

// fetchAhead sets the Fetcher if images are in object storage.
func (d *dataset) fetchAhead() {
	remote := func(f openfiles.File) bool { return stored.Remote(f.Path) }
	if slices.ContainsFunc(d.files, remote) {
		d.Fetcher = data.NewFetcher(stored.FetchesAtOnce, d.Load)
	}
}

// entry locates the image of a row.
type entry struct {
	offset int64 // byte offset in the file, or in source.paths
	size   int32 // size in bytes; 0: there is no image; below 0: -size is the length of the image's path
	label  int32
	file   int32
	row    int32 // index in the file
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

func (d *dataset) NewReader() (data.Reader, error) { return encoded.NewReader(d, d.decode) }

// Load implements encoded.Images.
func (d *dataset) Load(i int, buf []byte) ([]byte, error) { return d.contentsOf(d.samples[i], buf) }

// Place implements encoded.Images.
func (d *dataset) Place(i int) string {
	e := d.samples[i]
	place := fmt.Sprintf("%s!row %d", d.origins[e.file], e.row)
	if e.size < 0 {
		place += "!" + string(d.paths[e.offset:][:-e.size])
	}
	return place
}

func buffer(buf []byte, n int) []byte {
	if cap(buf) < n {
		buf = make([]byte, n+n/4)
	}
	return buf[:n]
}

// contentsOf returns the image of a row. It uses buf if buf is large enough.
func (s *source) contentsOf(e entry, buf []byte) (contents []byte, err error) {
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
		contents = buffer(buf, int(info.Size()))
		_, err = io.ReadFull(in, contents)
		return contents, err
	}
	h, err := s.Take(int(e.file))
	if err != nil {
		return nil, err
	}
	defer s.GiveBack(h)
	contents = buffer(buf, int(e.size))
	_, err = h.ReadAt(contents, e.offset)
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("the file became shorter after it was opened: %w", io.ErrUnexpectedEOF)
	}
	return contents, err
}

// addFile adds a data file of the data set at base to s. The parameter contents is the file itself, or the copy of its
// image columns.
func (s *source) addFile(base, path string, contents openfiles.File) {
	if info, err := stored.Stat(base); err == nil && !info.IsDir() {
		base = stored.Dir(base)
	}
	s.files = append(s.files, contents)
	s.origins = append(s.origins, path)
	s.folders = append(s.folders, base)
}

// within returns the folder of a file as a path that openPath accepts.
func (s *source) within(file int32) (string, error) {
	folder := stored.Dir(s.origins[file])
	if stored.Remote(folder) {
		if folder == s.folders[file] {
			return ".", nil
		}
		if within, ok := strings.CutPrefix(folder, strings.TrimSuffix(s.folders[file], "/")+"/"); ok {
			return within, nil
		}
		return folder, nil
	}
	if within, err := filepath.Rel(s.folders[file], folder); err == nil {
		return within, nil
	}
	return filepath.Abs(folder)
}

// openPath opens the image of a row of a file.
func (s *source) openPath(file int32, name string) (stored.File, os.FileInfo, error) {
	base := s.folders[file]
	if stored.Remote(base) { // object storage has no links
		if stored.Remote(name) || !filepath.IsLocal(filepath.FromSlash(name)) {
			return nil, nil, fmt.Errorf("the path leads out of the folder %s: copy the image into the folder", base)
		}
		return stored.OpenRandom(stored.Join(base, filepath.ToSlash(name)))
	}
	if s.follow {
		if !filepath.IsAbs(name) {
			name = filepath.Join(base, filepath.FromSlash(name))
		}
		return stored.OpenRandom(name)
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
	info, err := stored.Stat(path)
	if err != nil {
		return openfiles.File{}, err
	}
	return openfiles.Of(path, info), nil
}
