package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/layout"
	"github.com/hetero-train/hetero-train/engine/regular"
)

// Input is an image outside any data set.
type Input struct {
	Name     string // path of a file; with Contents, a name for messages
	Contents []byte // encoded image; nil: read the file
}

// Unlabelled returns a data set of images without known classes. All labels are 0. A file is opened only when its image
// is read.
func Unlabelled(inputs []Input, o DecodeOptions) data.Dataset {
	var l listing
	samples := make([]sample, len(inputs))
	given := inputSource{}
	for i, in := range inputs {
		l.addName(in.Name)
		samples[i].file = int32(i)
		if in.Contents != nil {
			given[in.Name] = in.Contents
		}
	}
	return newDataset(given, l, samples, []string{""}, o)
}

// inputSource reads files at any path. It maps the names of inputs with Contents to these contents.
type inputSource map[string][]byte

func (s inputSource) read(f file, buf []byte) (_ []byte, err error) {
	if contents, ok := s[f.name]; ok {
		return append(buf[:0], contents...), nil
	}
	in, info, err := regular.Open(f.name)
	if err != nil {
		return buf, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	if info.Size() > MaxFileBytes {
		return buf, fmt.Errorf("%d bytes, want a regular file of at most %d", info.Size(), MaxFileBytes)
	}
	buf = grow(buf, int(info.Size()))
	_, err = io.ReadFull(in, buf)
	return buf, err
}

func (inputSource) Close() error { return nil }

// MaxFileBytes is the largest permitted size of an image file, in bytes.
const MaxFileBytes = 64 << 20

// List returns the images in a folder and its subfolders, sorted. It ignores files of storage systems, and files
// without the extension of an image. The result note describes images that the program cannot read; it is "" if there
// are none. If the program can read none of the images, List returns an error. Broken links are included, so that
// reading them reports the cause. The parameter follow allows links that leave the folder.
func List(ctx context.Context, name string, follow bool) (names []string, note string, err error) {
	var l listing // only for the names of files that are not images
	folder, err := layout.OpenFolder(name, follow)
	if err == nil {
		folder.Broken = true
		err = folder.Walk(ctx, func(e layout.Entry) error {
			switch {
			case !e.Mode.IsRegular():
			case isImage(e.Name):
				names = append(names, path.Join(name, e.Name))
			default:
				l.addOther(e.Name)
			}
			return nil
		})
		folder.Close() // read only
	}
	if err == nil && names == nil {
		err = refuseForeign(l.foreign)
	}
	if err != nil {
		return nil, "", fmt.Errorf("list images in %s: %w", name, err)
	}
	slices.Sort(names)
	return names, skipped(l.foreign), nil
}
